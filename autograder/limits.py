"""A time limit for code that runs in this very process, as a student's function does in a notebook."""

import contextlib
import ctypes
import signal
import sys
import threading
import time

AGAIN = 0.05  # seconds after which the interruption is raised again, should the code have swallowed it


class TimeUp(BaseException):
    """Raised inside code that ran too long. A BaseException, so that `except Exception` does not swallow it."""


@contextlib.contextmanager
def time_limit(seconds: float | None):
    """Raise `TimeUp` in the block after `seconds`, and again until it ends; None sets no limit.

    In the main thread a timer signal does it, which also ends `time.sleep` and other waits. Elsewhere (a thread,
    Windows) another thread raises it at the next Python instruction. A single long call into C ends first.
    """
    if seconds is None:
        yield
        return
    in_main = threading.current_thread() is threading.main_thread()
    start = _signal_timer if in_main and hasattr(signal, "setitimer") else _thread_timer
    with start(seconds):
        yield


@contextlib.contextmanager
def _signal_timer(seconds: float):
    armed, rings, tracing = True, 0, sys.gettrace()

    def ring(signum, frame):
        nonlocal rings
        if armed:
            rings += 1
            if rings > 1:  # swallowed before
                _insist(frame, lambda: armed)
            raise TimeUp

    before, start = signal.signal(signal.SIGALRM, ring), time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)  # someone else's timer may be running
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - start), 1e-6), interval)
        if rings > 1:
            sys.settrace(tracing)


def _insist(frame, armed) -> None:
    """Raise `TimeUp` at every line from here on, so also inside the `except:` block that swallows it."""

    def trace(frame, event, arg):
        if frame.f_globals.get("__name__", "").startswith(__package__):
            return None  # not in our own `finally` blocks
        if event == "line" and armed():
            raise TimeUp
        return trace

    sys.settrace(trace)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(__package__):
            frame.f_trace = trace
        frame = frame.f_back


@contextlib.contextmanager
def _thread_timer(seconds: float):
    thread, over, lock = threading.get_ident(), threading.Event(), threading.Lock()

    def interrupt(exception) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)

    def ring():
        wait = seconds
        while not over.wait(wait):
            with lock:
                if not over.is_set():
                    interrupt(ctypes.py_object(TimeUp))
            wait = AGAIN

    watch = threading.Thread(target=ring, daemon=True)
    watch.start()
    try:
        yield
    finally:
        with lock:
            over.set()
            interrupt(None)  # one that was sent but not yet raised
        watch.join()
