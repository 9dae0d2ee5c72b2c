"""A failure that may be the machine's fault is checked again alone, before it counts."""

import threading

import pytest

from autograder.grading import alone
from autograder.grading.run import run_lab
from autograder.grading.seeds import seeds
from autograder.results import CheckResult, ExerciseResult

SEED_OF = seeds(b"", "")
SLOW = "import time\ndef double(f, x):\n    time.sleep({})\n    return 2 * f(x)\n"


@pytest.fixture
def floor(tmp_path, monkeypatch):
    found = alone.Floor(tmp_path / "lanes")
    monkeypatch.setattr(alone, "FLOOR", found)
    return found


def points(found):
    return {result.name: result.points for result in found}


def test_a_time_out_is_asked_again(floor, tiny, remote, solution, monkeypatch):
    """The first time the machine is crowded: of its second, the check has nothing left."""
    session = remote(*solution.values())
    first = run_lab(tiny, session, SEED_OF, lambda exercise, check: check.seconds)
    for check in first[1].checks:
        check.status, check.kind = "failed", "timeout"
    alone.ask_again(tiny, first, session, SEED_OF)
    assert points(first) == {"mean": 60, "count": 40}
    assert first[1].note == alone.SAID
    assert not first[0].note


@pytest.mark.labs  # waits for two limits
def test_what_is_really_slow_stays_so(floor, tiny, remote, solution):
    session = remote(solution["mean"], solution["count"], SLOW.format(3))
    found = run_lab(tiny, session, SEED_OF)
    before = points(found)
    alone.ask_again(tiny, found, session, SEED_OF)
    assert points(found) == before == {"mean": 60, "count": 20}
    assert not found[1].note


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("timeout", "", True),
        ("ended", f"Your code ended the Python process: {alone.KILLED}.", True),
        ("ended", "Your code ended the Python process: a segmentation fault.", False),
        ("values", "", False),
    ],
)
def test_which_verdicts_are_in_doubt(kind, message, expected):
    check = CheckResult("c", "t", 1.0, kind=kind, message=message)
    assert alone.is_doubtful(ExerciseResult("tiny.e", "e", 1.0, [check])) is expected


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("undisturbed", [False, True])
def test_only_what_was_alone_is_certain(crowded, undisturbed):
    check = CheckResult("c", "t", 1.0, kind="timeout", undisturbed=undisturbed)
    assert alone.is_doubtful(ExerciseResult("tiny.e", "e", 1.0, [check]), crowded) is (crowded or not undisturbed)


def test_nobody_else_is_at_work(floor):
    """Another lane, known to the system by its own descriptor, is at work first."""
    other, events = alone.Floor(floor.folder), []
    with floor.shared():

        def ask():
            with floor.alone():
                events.append("alone")

        with other.shared():
            asking = threading.Thread(target=ask)
            asking.start()
            asking.join(0.2)  # it waits: were it not to, its word would come first
            events.append("other ends")
        asking.join(60)
        assert events == ["other ends", "alone"]
        with other.shared():
            events.append("both at work")


def test_one_waits_no_longer_than_its_patience(floor, monkeypatch):
    other, now = alone.Floor(floor.folder), iter(range(10_000))
    monkeypatch.setattr(alone.time, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(alone.time, "sleep", lambda seconds: None)
    with other.shared(), floor.shared(), floor.alone():
        pass
    assert next(now) > alone.PATIENCE


def test_where_there_are_no_locks_it_goes_on(tmp_path, monkeypatch):
    (tmp_path / "lanes").write_text("a file")
    floor = alone.Floor(tmp_path / "lanes")
    with floor.shared(), floor.alone():
        assert floor.shares == -1
