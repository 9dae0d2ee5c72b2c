"""Raise an exception in this thread after a while, or in another thread, but never inside an import or what is `whole`.

In Python 3.11 there is one flag for all threads. It is set when an exception is sent or withdrawn, and cleared only
when one is raised. While it is set, a function that `sys.setprofile` or `sys.settrace` watches is never entered: its
first instruction finds the flag, has nothing to raise, and begins again. So if you send an exception, call `settle`
afterwards.
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

POLL = 0.01  # seconds between checks for the end of an import


class _Settled(BaseException):
    pass


@contextmanager
def alarm(seconds: float, error: BaseException) -> Iterator[None]:
    """Raise `error` once in the block after `seconds`; only in the main thread, and only where the system has such
    signals."""
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
    """Raise `exception` in `thread`, by its identifier, at its next Python instruction; do nothing if it has ended."""
    # Only the interpreter can make another thread raise.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


def settle() -> None:
    """Withdraw an exception sent to this thread but not yet raised, and clear the flag for all threads.

    An exception pending for another thread stays: that thread sets the flag again when its turn comes.
    """
    with suppress(_Settled):
        interrupt(threading.get_ident(), _Settled)
        while True:  # raised before the first round ends
            pass


def interrupt_outside_imports(thread: int, exception: type[BaseException]) -> bool:
    """Interrupt `thread` unless it is importing a module; return whether the exception was sent."""
    if is_importing(frame_of(thread)):
        return False
    interrupt(thread, exception)
    if is_importing(frame_of(thread)):  # the import began after the check; the exception is still pending
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)
        settle()
        return False
    return True


def interrupt_after_imports(thread: int, exception: type[BaseException]) -> None:
    """Interrupt `thread` as soon as its import has ended, even if this thread is interrupted while it waits.

    An import that never ends is interrupted after `import_patience`.
    """
    begin = time.monotonic()
    while True:
        with suppress(BaseException):  # a second Ctrl-C asks for the same
            if interrupt_outside_imports(thread, exception):
                return
            if time.monotonic() > begin + import_patience(frame_of(thread)):
                return interrupt(thread, exception)
            time.sleep(POLL)


def frame_of(thread: int) -> FrameType | None:
    """Return the current frame of `thread`; None if it has ended."""
    return sys._current_frames().get(thread)


class InterruptAfterImports:
    """A handler for SIGINT (Ctrl-C, ■): KeyboardInterrupt in the main thread, once the import in progress has ended."""

    def __init__(self):
        self._first: float | None = None  # when the pending signal came

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
    """Make Ctrl-C wait for the end of an import in this block; only in the main thread, if Ctrl-C raises
    KeyboardInterrupt."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    before = signal.signal(signal.SIGINT, InterruptAfterImports())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
