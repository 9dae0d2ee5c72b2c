"""Time limits for code in this process, such as a student's function in a notebook."""

import _signal  # the C module below `signal`, which looks handlers up among enums and takes twenty times as long
import os
import signal
import sys
import threading
import time
from pathlib import Path

from hpcdl.interrupt import frame_of, interrupt, interrupt_outside_imports, settle
from hpcdl.lazy import import_patience, is_between, whole

from .own import contextlib

AGAIN = 0.05  # seconds before the interruption is raised again, in case the code swallowed it
SPARED = (f"{Path(__file__).parents[1]}{os.sep}", contextlib.__file__)  # frames of these files are not interrupted

ASIDE = 10  # the other side and nested calls may use up to this many times the limit
CROWDED = 40  # wall-clock time may not exceed this many times the limit, however busy the machine is


class Account:
    """Seconds of one thread that do not count for the student: the other side works, or a nested call is timed
    separately."""

    def __init__(self):
        self.clock, self.total = own_clock(), 0.0
        self.begun: tuple[float, float] | None = None

    def __del__(self):
        if self.clock >= 0:
            os.close(self.clock)

    def seconds(self) -> float:
        """Return these seconds so far, including the current period."""
        return self.total + (self._since(self.begun) if self.begun else 0.0)

    @contextlib.contextmanager
    @whole
    def aside(self):
        """Do not count the time in the block as the student's."""
        if self.begun:
            yield
            return
        self.begun = self._now()
        try:
            yield
        finally:
            self.total, self.begun = self.seconds(), None

    @contextlib.contextmanager
    @whole
    def counted(self):
        """Count the time in the block for stopwatches started inside it, but not for earlier ones."""
        if not self.begun:
            yield
            return
        self.total, self.begun = self.seconds(), None
        total, begun = self.total, self._now()
        try:
            yield
        finally:
            self.total, self.begun = total + self._since(begun), self._now()

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), waited(self.clock)

    def _since(self, begun: tuple[float, float]) -> float:
        """Return the seconds without waits for a processor, which a stopwatch subtracts itself."""
        now = self._now()
        return max(0.0, now[0] - begun[0] - (now[1] - begun[1]))


_here = threading.local()


def account() -> Account:
    """Return this thread's account."""
    try:
        return _here.account
    except AttributeError:
        _here.account = Account()
        return _here.account


if hasattr(os, "register_at_fork"):  # a forked process starts a new one
    os.register_at_fork(after_in_child=lambda: vars(_here).clear())


def waited(clock: int) -> float:
    """Return the seconds that a thread waited for a processor, by its schedstat; 0 if the system does not say."""
    try:
        return int(os.pread(clock, 100, 0).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


class Stopwatch:
    """Measures a student's own work from now: the elapsed time minus waits caused by others.

    It subtracts the time that the process, and the process waiting for it, waited for a processor, and the time of
    called check functions. An endless loop uses up its limit on any machine, and right code does not fail because the
    machine is busy (Linux; elsewhere it is wall-clock time). `clock` is a descriptor of a process's
    `/proc/.../schedstat`, or None for the current thread.
    """

    def __init__(self, clock: int | None = None):
        self.account = account()
        self.clocks = [self.account.clock] if clock is None else [clock, self.account.clock]
        self.latest = [0.0] * len(self.clocks)
        self.start, self.waited_before, self.aside_before = time.monotonic(), self._waited(), self.account.seconds()

    def seconds(self) -> float:
        return self.wall() - (self._waited() - self.waited_before) - self.aside()

    def wall(self) -> float:
        return time.monotonic() - self.start

    def aside(self) -> float:
        return self.account.seconds() - self.aside_before

    def left(self, limit: float) -> float:
        """Return the seconds left of `limit`, with an upper bound on others' time, too."""
        wall = self.wall()
        if wall < limit:
            return limit - wall
        return min(limit - self.seconds(), ASIDE * limit - self.aside(), CROWDED * limit - wall)

    def _waited(self) -> float:
        # An ended process does not wait: its last accounting stays.
        for i, clock in enumerate(self.clocks):
            self.latest[i] = max(self.latest[i], waited(clock))
        return sum(self.latest)


class Together:
    """The stopwatches of ranks that run one at a time: a limit applies to all of them together."""

    def __init__(self):
        self.start, self.ended, self.running = time.monotonic(), 0.0, set[Stopwatch]()

    @contextlib.contextmanager
    @whole
    def with_call(self, watch: Stopwatch):
        """Add a rank's call, timed by `watch`."""
        self.running.add(watch)
        try:
            yield
        finally:
            self.ended += max(0.0, watch.seconds())
            self.running.discard(watch)

    def seconds(self) -> float:
        return self.ended + sum(max(0.0, watch.seconds()) for watch in [*self.running])

    def left(self, limit: float) -> float:
        """Return the seconds left, like `Stopwatch.left`."""
        wall = time.monotonic() - self.start
        return limit - wall if wall < limit else min(limit - self.seconds(), CROWDED * limit - wall)


def own_clock() -> int:
    """Return a descriptor of this thread's schedstat, or -1."""
    main = threading.current_thread() is threading.main_thread()
    try:
        return os.open(f"/proc/{'self' if main else 'thread-self'}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


class TimeUp(BaseException):
    """Raised inside code that ran too long. A BaseException, so that `except Exception` does not swallow it."""


@contextlib.contextmanager
@whole
def time_limit(seconds: float | None):
    """Raise `TimeUp` in the block after `seconds`, repeatedly until it ends; None sets no limit.

    In the main thread this uses a timer signal, which also ends `time.sleep` and other waits. Elsewhere (a thread,
    Windows) another thread raises it at the next Python instruction, after the current C call has ended.
    """
    if seconds is None:
        yield
        return
    in_main = threading.current_thread() is threading.main_thread()
    start = _signal_timer if in_main and hasattr(signal, "setitimer") else _thread_timer
    with start(seconds):
        yield


@contextlib.contextmanager
@whole
def _signal_timer(seconds: float):
    armed, rings, tracing, watch = True, 0, sys.gettrace(), Stopwatch()

    def ring(signum, frame):
        nonlocal rings
        if not armed or is_between(frame):
            return  # it rings again
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
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)  # another timer may be running
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
    """Return the seconds to wait for an import in `frame` or another thread, such as the current rank's."""
    return max(map(import_patience, [frame, *sys._current_frames().values()]))


def _insist(frame, armed) -> None:
    """Raise `TimeUp` at every line from now on, even inside the `except:` block that swallows it."""

    def trace(frame, event, arg):
        if frame.f_code.co_filename.startswith(SPARED):
            return None  # not in our own `finally` blocks, or on the way to them
        if event == "line" and armed():
            raise TimeUp
        return trace

    sys.settrace(trace)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(SPARED):
            frame.f_trace = trace
        frame = frame.f_back


@contextlib.contextmanager
@whole
def _thread_timer(seconds: float):
    thread, over, lock = threading.get_ident(), threading.Event(), threading.Lock()

    own = Stopwatch()

    def ring():
        wait = seconds
        while not over.wait(wait):
            wait = AGAIN
            if own.left(seconds) > 0:
                continue
            with lock:
                if not over.is_set() and own.wall() < seconds + _import_patience(None):
                    continue
                if not over.is_set() and not interrupt_outside_imports(thread, TimeUp):
                    found = frame_of(thread)
                    if own.wall() > seconds + import_patience(found) and not is_between(found):
                        interrupt(thread, TimeUp)

    watch = threading.Thread(target=ring, daemon=True)
    watch.start()
    try:
        yield
    finally:
        while not over.is_set():
            with contextlib.suppress(TimeUp), lock:  # an exception sent just now may be raised here
                over.set()
                settle()
        watch.join()
