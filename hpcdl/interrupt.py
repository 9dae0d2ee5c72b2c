"""An exception raised in this thread after a while, or in another one, and the flag that Python keeps up for that.

In Python 3.11 there is one flag for all threads. It goes up when an exception is sent or taken back, and comes down
only where one is raised. While it is up, a function that `sys.setprofile` or `sys.settrace` watches is never entered:
its first instruction finds the flag, has nothing to raise, and begins again. So who sends an exception calls `settle`.
"""

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hpcdl.lazy import is_importing

IMPORT = 5.0  # seconds that an import is given to end: cut short, it would fail for the rest of the process
POLL = 0.01


class _Settled(BaseException):
    pass


@contextmanager
def alarm(seconds: float, error: BaseException) -> Iterator[None]:
    """Raise `error` in the block after `seconds`, once; in the main thread alone, and where there are such signals."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(_number, frame):
        if is_importing(frame):
            signal.setitimer(signal.ITIMER_REAL, POLL)
        else:
            raise error

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
