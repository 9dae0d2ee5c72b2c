"""A time limit does not leave a module half imported: it would fail for the rest of the process."""

import contextlib
import importlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from autograder.boundary import limits, own
from hpcdl import lazy
from hpcdl.comm import simulate


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """The name of a module whose import takes longer than the limit."""
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.4)\nvalue = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "slow_to_import"
    sys.modules.pop("slow_to_import", None)


def test_an_import_ends_before_its_time_is_up(slow):
    def answer():
        importlib.import_module(slow)
        time.sleep(5)

    with pytest.raises(limits.TimeUp), limits.time_limit(0.05):
        answer()
    assert sys.modules[slow].value == 1


def test_an_import_ends_in_another_thread_too(slow):
    stopped = []

    def answer():
        try:
            with limits.time_limit(0.05):
                importlib.import_module(slow)
                while True:
                    pass
        except limits.TimeUp:
            stopped.append(sys.modules[slow].value)

    thread = threading.Thread(target=answer)
    thread.start()
    thread.join(timeout=10)
    assert stopped == [1]


def test_an_import_of_a_simulated_rank_ends_first(slow):
    def rank(comm):
        importlib.import_module(slow)
        while True:
            pass

    with pytest.raises(limits.TimeUp), limits.time_limit(0.05):
        simulate(rank, 1)
    assert sys.modules[slow].value == 1


IN_A_THREAD = """
import sys, threading
from autograder.boundary.limits import TimeUp, time_limit

def answer(seconds):
    try:
        with time_limit(seconds):
            while seconds < 1:
                pass
    except TimeUp:
        pass

for seconds in (0.05, 60):
    thread = threading.Thread(target=answer, args=(seconds,))
    thread.start()
    thread.join()
    sys.setprofile(lambda *_: None)
    answer(60)
    sys.setprofile(None)
"""


def test_a_limit_in_a_thread_leaves_functions_that_a_profile_can_watch():
    subprocess.run([sys.executable, "-c", IN_A_THREAD], check=True, timeout=120)


def test_one_that_never_ends_is_stopped_all_the_same(slow, monkeypatch):
    monkeypatch.setattr(lazy, "OWN_PATIENCE", 0.1)
    with pytest.raises(limits.TimeUp), limits.time_limit(0.05):
        importlib.import_module(slow)
    assert slow not in sys.modules


# -- whose time it is, on a clock of the test's own


class Clock:
    """A clock that only the test moves: seconds on the wall, and those that each thread stood in line."""

    def __init__(self, monkeypatch):
        self.now, self.lines = 100.0, {}
        monkeypatch.setattr(limits.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(limits, "waited", lambda clock: self.lines.get(clock, 0.0))

    def passes(self, seconds: float, *in_line: int) -> None:
        """Seconds pass, in which these threads stand in line for a processor."""
        self.now += seconds
        for clock in in_line:
            self.lines[clock] = self.lines.get(clock, 0.0) + seconds


WORKER = 1_000_001


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(limits, "_here", threading.local())
    return Clock(monkeypatch)


def test_others_are_not_the_students_time(clock):
    """300 calls back on a crowded machine, in which other processes use all but a millisecond each."""
    own, watch = limits.account(), limits.Stopwatch(WORKER)
    for _ in range(300):
        clock.passes(0.001)  # the student's
        clock.passes(0.05, WORKER)
        clock.passes(0.05, own.clock)  # the grader is not yet there
        with own.aside():
            clock.passes(0.02)
            clock.passes(0.05, own.clock)
        clock.passes(0.05, WORKER)
    assert watch.wall() > 50
    assert watch.seconds() == pytest.approx(0.3)
    assert watch.left(5.0) == pytest.approx(4.7)


def test_what_is_the_students_uses_up_the_limit(clock):
    watch = limits.Stopwatch(WORKER)
    clock.passes(4.0)  # it computes or sleeps
    clock.passes(90.0, WORKER)
    assert watch.left(5.0) == pytest.approx(1.0)
    clock.passes(1.5)
    assert watch.left(5.0) < 0


def test_a_call_within_is_counted_by_itself(clock):
    own, outer = limits.account(), limits.Stopwatch(WORKER)
    clock.passes(1.0)
    with own.aside():
        clock.passes(10.0)
        with own.counted():
            inner = limits.Stopwatch(WORKER)
            clock.passes(2.0)
            with own.aside():
                clock.passes(20.0)
            clock.passes(1.0)
            assert inner.seconds() == pytest.approx(3.0)
        clock.passes(10.0)
    clock.passes(0.5)
    assert outer.seconds() == pytest.approx(1.5)


def test_calls_back_for_ever_end(clock):
    own, watch = limits.account(), limits.Stopwatch(WORKER)
    while watch.left(1.0) > 0:
        with own.aside():
            clock.passes(0.5)
    assert watch.wall() <= limits.ASIDE + 1


def test_a_machine_that_stands_still_ends_too(clock):
    watch = limits.Stopwatch(WORKER)
    clock.passes(limits.CROWDED + 1, WORKER)
    assert watch.left(1.0) < 0


def test_ranks_share_one_limit(clock):
    together = limits.Together()
    watches = [limits.Stopwatch(WORKER + rank) for rank in range(4)]
    with contextlib.ExitStack() as stack:
        for watch in watches:
            stack.enter_context(together.with_call(watch))
        clock.passes(1.0, *(WORKER + rank for rank in (1, 2, 3)))  # one runs, the others stand in line
        assert together.seconds() == pytest.approx(1.0)
    clock.passes(9.0)
    assert together.seconds() == pytest.approx(1.0), "calls that have ended take no more"
    assert together.left(5.0) == pytest.approx(4.0)


ENDS_A_BLOCK = vars(own.contextlib._GeneratorContextManager)["__exit__"].__code__


@contextlib.contextmanager
def swallowing():
    with contextlib.suppress(BaseException):
        yield


@pytest.mark.parametrize("context", [lambda: contextlib.suppress(BaseException), swallowing])
def test_code_that_swallows_in_a_context_is_stopped(context):
    def stubborn():
        while True:
            with context():
                time.sleep(0.001)

    with pytest.raises(limits.TimeUp), limits.time_limit(0.05):
        stubborn()
    assert sys.gettrace() is None


@pytest.mark.parametrize("code", [ENDS_A_BLOCK, limits._signal_timer.__wrapped__.__code__])
def test_a_limit_that_rings_while_its_block_ends_leaves_no_timer(code):
    """After the time, freeing an answer's billion numbers may take so long that it rings again on the way out."""
    rung = []

    def ring(frame, event, arg):
        if event == "call" and frame.f_code is code:
            sys.setprofile(None)
            rung.append(code)
            signal.getsignal(signal.SIGALRM)(signal.SIGALRM, frame)

    def endless():
        try:
            while True:
                pass
        except limits.TimeUp:
            signal.setitimer(signal.ITIMER_REAL, 0)  # it rings as planned, and on no clock
            sys.setprofile(ring)
            raise

    before = signal.getsignal(signal.SIGALRM)
    try:
        with pytest.raises(limits.TimeUp), limits.time_limit(0.05):
            endless()
    finally:
        sys.setprofile(None)
    assert (rung, signal.getsignal(signal.SIGALRM), sys.gettrace()) == ([code], before, None)


def traced(file: str, **names: str) -> bool:
    """Return whether a line of code of this file raises while a limit insists."""
    module: dict = names
    exec(compile("def f():\n    x = 1\n    return x", file, "exec"), module)
    before = sys.gettrace()
    limits._insist(None, lambda: True)
    try:
        module["f"]()
    except limits.TimeUp:
        return True
    finally:
        sys.settrace(before)
    return False


def test_insistence_spares_our_frames_alone():
    """A way out through contextlib ends in our `finally`; a student's module may have any other name."""
    assert not traced(limits.__file__)
    assert not traced(contextlib.__file__)
    for file in ("cell 3", "answer.py", "autograder.py", "contextlib.py", "torch_tools.py"):
        assert traced(file), file
    assert traced("cell 3", __name__="autograder.boundary")
