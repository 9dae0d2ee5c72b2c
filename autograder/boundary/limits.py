"""A time limit for code that runs in this very process, as a student's function does in a notebook."""

import _signal  # what `signal` is made of: there a handler is looked up among enums first, for twenty times as long
import contextlib
import os
import signal
import sys
import threading
import time
from functools import cache

from hpcdl.interrupt import frame_of, interrupt, interrupt_outside_imports, settle
from hpcdl.lazy import import_patience

AGAIN = 0.05  # seconds after which the interruption is raised again, should the code have swallowed it
OURS = __package__.partition(".")[0]  # the package whose own frames are left alone

CROWDED = 4  # times the limit that may pass on the wall's clock, however busy the machine is


class Stopwatch:
    """Seconds that a process has had since now: the time that passed, less the time it stood in line for a processor.

    A loop uses up its limit on any machine; right code is not failed because the machine is busy (Linux; elsewhere
    these are the wall's seconds). `clock` is a descriptor of a process's `/proc/.../schedstat`, or None for this one.
    """

    def __init__(self, clock: int | None = None):
        self.clock, self.waited = own_clock(os.getpid()) if clock is None else clock, 0.0
        self.start, self.waited_before = time.monotonic(), self._waited()

    def seconds(self) -> float:
        return self.wall() - (self._waited() - self.waited_before)

    def wall(self) -> float:
        return time.monotonic() - self.start

    def left(self, limit: float) -> float:
        """Seconds that are left of `limit`: of the process's own, and at most a few times as many on the wall."""
        wall = self.wall()
        return limit - wall if wall < limit else min(limit - self.seconds(), CROWDED * limit - wall)

    def _waited(self) -> float:
        # A process that has ended waits no more; another system does not say.
        with contextlib.suppress(OSError, IndexError, ValueError):
            self.waited = int(os.pread(self.clock, 100, 0).split()[1]) * 1e-9
        return self.waited


@cache
def own_clock(pid: int) -> int:
    """A descriptor of this process's schedstat, kept open: it is read twice a call. -1 where there is none."""
    try:
        return os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


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
    armed, rings, tracing, watch = True, 0, sys.gettrace(), Stopwatch()

    def ring(signum, frame):
        nonlocal rings
        if not armed:
            return
        if rings == 0 and (more := watch.left(seconds)) > 0:
            signal.setitimer(signal.ITIMER_REAL, max(more, 1e-3), AGAIN)
            return
        if rings == 0 and watch.wall() < seconds + _import_patience(frame):
            return  # it rings again
        rings += 1
        if rings > 1:  # swallowed before
            _insist(frame, lambda: armed)
        raise TimeUp

    before = _signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)  # someone else's timer may be running
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        _signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - watch.wall(), 1e-6), interval)
        if rings > 1:
            sys.settrace(tracing)


def _import_patience(frame) -> float:
    """The seconds for an import in progress in `frame` or another thread, such as the rank whose turn it is."""
    return max(map(import_patience, [frame, *sys._current_frames().values()]))


def _insist(frame, armed) -> None:
    """Raise `TimeUp` at every line from here on, so also inside the `except:` block that swallows it."""

    def trace(frame, event, arg):
        if frame.f_globals.get("__name__", "").startswith(OURS):
            return None  # not in our own `finally` blocks
        if event == "line" and armed():
            raise TimeUp
        return trace

    sys.settrace(trace)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(OURS):
            frame.f_trace = trace
        frame = frame.f_back


@contextlib.contextmanager
def _thread_timer(seconds: float):
    thread, over, lock = threading.get_ident(), threading.Event(), threading.Lock()

    def ring():
        watch, wait = Stopwatch(), seconds
        while not over.wait(wait):
            wait = AGAIN
            with lock:
                if not over.is_set() and watch.wall() < seconds + _import_patience(None):
                    continue
                if not over.is_set() and not interrupt_outside_imports(thread, TimeUp):
                    late = watch.wall() > seconds + import_patience(frame_of(thread))
                    if late:
                        interrupt(thread, TimeUp)

    watch = threading.Thread(target=ring, daemon=True)
    watch.start()
    try:
        yield
    finally:
        while not over.is_set():
            with contextlib.suppress(TimeUp), lock:  # one that was sent just now may be raised here
                over.set()
                settle()
        watch.join()
