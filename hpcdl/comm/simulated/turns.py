"""Threads that take turns: one rank runs at a time, always the earliest in virtual time.

With a thread, a rank can be ordinary code that pauses in the middle of a call, even inside autograd's hooks. Threads
never run at the same time here: a thread that pauses passes the turn directly to the next, so a run is deterministic.
"""

import os
import sys
import threading
from _thread import allocate_lock
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from pathlib import Path
from random import Random

from hpcdl.comm.errors import CommError
from hpcdl.comm.location import SourceLine, lines_of
from hpcdl.interrupt import interrupt_after_imports, settle
from hpcdl.lazy import whole

MANY = 32  # from this many ranks it pays to keep them on one core
STACK_BYTES = 2 << 20  # reserved, not used: enough for torch's kernels, small enough for 1,024 threads


class Stopped(SystemExit):
    """Ends a rank's thread when the run is over; not an Exception, so that `except Exception` does not catch it."""


class Turns:
    """`p` ranks, each with a clock; `seed` orders ranks at the same time (0: first come, first served)."""

    def __init__(self, p: int, seed: int = 0):
        self.clocks = [0.0] * p
        self.failed: tuple[int, BaseException] | None = None
        self.returned = [False] * p
        self._ready: list[tuple[float, float, int]] = []
        self._tie = Random(seed).random if seed else count().__next__
        self._turns = [allocate_lock() for _ in range(p)]
        self._over = allocate_lock()
        self._threads: list[threading.Thread] = []
        self._current = 0
        self._stopping = self._interrupted = False
        for lock in (*self._turns, self._over):
            lock.acquire()

    def run(self, body: Callable[[int], None], stuck: Callable[[], Exception]) -> None:
        """Run `body(rank)` to its end for every rank; raise `stuck()` if all remaining ranks have paused."""
        self._core = _current_core()
        try:
            self._take_turns(body)
            if self.failed is None and not all(self.returned):
                raise stuck()
        finally:
            self._stop()

    def wake(self, rank: int) -> None:
        """Schedule a turn for `rank` at its clock's time."""
        heappush(self._ready, (self.clocks[rank], self._tie(), rank))

    def wake_earlier(self, rank: int, clock: float) -> None:
        """Move the turn scheduled for `rank` forward to `clock`."""
        self._ready = [entry for entry in self._ready if entry[2] != rank]
        heapify(self._ready)
        self.clocks[rank] = clock
        self.wake(rank)

    def pause(self, rank: int) -> None:
        """Give the turn away; return when the turn comes back after a `wake(rank)`."""
        self._check_not_over()
        if not self._pass_on(rank):
            self._turns[rank].acquire()
        self._check_not_over()

    def advance(self, rank: int, seconds: float) -> None:
        """Keep `rank` busy for a while: ranks that are now earlier run first."""
        self.clocks[rank] += seconds
        if self._ready and self._ready[0][0] < self.clocks[rank]:
            self.wake(rank)
            self.pause(rank)

    def step(self, rank: int, seconds: float) -> None:
        """Like `advance`, but ranks at the same time may also run first, in the order of `seed`."""
        self.clocks[rank] += seconds
        self.wake(rank)
        self.pause(rank)

    def stack(self, rank: int) -> list[SourceLine]:
        """Return the current stack of `rank`, outermost call first."""
        return lines_of(sys._current_frames().get(self._ident(rank)))

    def _ident(self, rank: int) -> int:
        ident = self._threads[rank].ident
        assert ident is not None  # every thread is started when it is created
        return ident

    def _pass_on(self, me: int | None = None) -> bool:
        """Pass the turn to the earliest ready rank; return True if that is `me`."""
        if not self._ready:
            self._over.release()
            return False
        self._current = heappop(self._ready)[2]
        if self._current == me:
            return True
        self._turns[self._current].release()
        return False

    def _take_turns(self, body):
        """Start all ranks and wait for their end."""
        try:
            self._start(range(len(self.clocks)), body)
            for rank in range(len(self.clocks)):
                self.wake(rank)
            self._pass_on()
            self._over.acquire()
        except BaseException:  # Ctrl-C or a time limit: the running rank may be in an endless loop
            self._stopping = self._interrupted = True
            if self._threads:
                interrupt_after_imports(self._ident(self._current), Stopped)
            raise

    def spawn(self, body: Callable[[int], None]) -> int:
        """Add a turn with its own clock and return its number. It begins when woken, and never ends.

        The run does not wait for it.
        """
        number, lock = len(self.clocks), allocate_lock()
        lock.acquire()
        self.clocks.append(0.0)
        self._turns.append(lock)
        self._start([number], body)
        return number

    @whole
    def _start(self, numbers, body):
        previous = threading.stack_size(STACK_BYTES)
        try:
            for number in numbers:
                thread = threading.Thread(target=self._live, args=(body, number), name=f"rank {number}", daemon=True)
                self._threads.append(thread)
                thread.start()
        finally:
            threading.stack_size(previous)

    def _live(self, body, rank):
        if len(self.clocks) >= MANY:
            _stay_on(self._core)
        try:
            self._turns[rank].acquire()
            self._check_not_over()
            body(rank)
            self.returned[rank] = True
            self._pass_on()
        except Stopped:
            pass
        except BaseException as error:
            self.failed = (rank, error)
            self._over.release()

    def _check_not_over(self):
        if self._stopping:
            if threading.current_thread() in self._threads:
                raise Stopped
            raise CommError("this simulation has ended; use comm only inside the function that simulate runs")

    @whole
    def _stop(self):
        """End the remaining threads one after another: each gets a turn and stops."""
        self._stopping = True
        for lock, thread in zip(self._turns, self._threads, strict=False):
            if thread.is_alive():
                with suppress(RuntimeError):  # it already has the turn
                    lock.release()
                thread.join(timeout=1.0)
        if self._interrupted:
            settle()


@whole
def _current_core() -> int | None:
    """Return the core that runs this process now, or None if the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[36])
    return None


def _stay_on(core: int | None) -> None:
    """Keep this thread on `core`, and delay its wake-up until the thread that woke it sleeps.

    Passing a turn within one core costs half as much as between two cores. It costs half of that again if the new
    thread does not wake up while the old one still holds the interpreter's lock.
    """
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if core is not None:
        with suppress(OSError, AttributeError):
            os.sched_setaffinity(0, {core})
