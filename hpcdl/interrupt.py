"""Raise an exception in this thread after a while, or in another thread, but never inside an import or what is `whole`.

In Python 3.11 there is one flag for all threads. It goes up when an exception is sent or taken back, and comes down
only where one is raised. While it is up, a function that `sys.setprofile` or `sys.settrace` watches is never entered:
its first instruction finds the flag, has nothing to raise, and begins again. So who sends an exception calls `settle`.
"""

import _thread
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from hpcdl.lazy import import_patience, is_importing, whole

POLL = 0.01  # seconds between two looks whether an import has ended


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


def interrupt_outside_imports(thread: int, exception: type[BaseException]) -> bool:
    """`interrupt(thread, exception)` unless `thread` imports a module; whether it was sent."""
    if is_importing(frame_of(thread)):
        return False
    interrupt(thread, exception)
    if is_importing(frame_of(thread)):  # it began between the look and the exception, which is not raised yet
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)
        settle()
        return False
    return True


def interrupt_after_imports(thread: int, exception: type[BaseException]) -> None:
    """Interrupt `thread` as soon as its import has ended, however often this thread is interrupted meanwhile.

    An import that never ends is interrupted after `import_patience`.
    """
    begin = time.monotonic()
    while True:
        with suppress(BaseException):  # a second Ctrl-C asks for what is being done
            if interrupt_outside_imports(thread, exception):
                return
            if time.monotonic() > begin + import_patience(frame_of(thread)):
                return interrupt(thread, exception)
            time.sleep(POLL)


def frame_of(thread: int) -> FrameType | None:
    """Where `thread` is now; None if it has ended."""
    return sys._current_frames().get(thread)


class InterruptAfterImports:
    """A handler for SIGINT (Ctrl-C, ■): KeyboardInterrupt in the main thread, once the import in progress has ended."""

    def __init__(self):
        self._first: float | None = None  # when the signal came that waits

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self._first = now if self._first is None else self._first
        if now < self._first + import_patience(frame):
            _thread.start_new_thread(_again, (number,))
            return
        self._first = None
        signal.default_int_handler(number, frame)


def _again(number: int) -> None:
    """Send the signal once more."""
    time.sleep(POLL)
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main:
        signal.pthread_kill(main, number)  # a real signal: it also ends a sleep
    else:
        _thread.interrupt_main(signal.Signals(number))


@contextmanager
@whole
def whole_imports() -> Iterator[None]:
    """In the block Ctrl-C waits for the end of an import; in the main thread, where Ctrl-C is KeyboardInterrupt."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    before = signal.signal(signal.SIGINT, InterruptAfterImports())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
