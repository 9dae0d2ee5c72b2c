"""An exception raised in another thread of this process, and the flag that Python keeps up for it.

In Python 3.11 there is one flag for all threads. It goes up when an exception is sent or taken back, and comes down
only where one is raised. While it is up, a function that `sys.setprofile` or `sys.settrace` watches is never entered:
its first instruction finds the flag, has nothing to raise, and begins again. So who sends an exception calls `settle`.
"""

import ctypes
import sys
import threading
import time
from contextlib import suppress

from hpcdl.lazy import is_importing

IMPORT = 5.0  # seconds that an import is given to end: cut short, it would fail for the rest of the process
POLL = 0.01


class _Settled(BaseException):
    pass


def interrupt(thread: int, exception: type[BaseException]) -> None:
    """Raise `exception` in `thread`, by its identifier, at its next Python instruction; nothing if it has ended."""
    # Only the interpreter itself can make another thread raise.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


def settle() -> None:
    """Take back what was sent to this thread and is not raised yet, and take down the flag for all threads.

    An exception that waits for another thread stays: that thread puts the flag up again when its turn comes.
    """
    with suppress(_Settled):
        interrupt(threading.get_ident(), _Settled)
        while True:  # raised before the first round ends
            pass


def wait_for_import(thread: int, seconds: float = IMPORT) -> None:
    """Return when `thread` stands in no import, at the latest after `seconds`."""
    end = time.monotonic() + seconds
    while is_importing(sys._current_frames().get(thread)) and time.monotonic() < end:
        time.sleep(POLL)
