"""An answer that waits instead of working keeps no other lane waiting: asked again alone, it would wait again."""

import pytest

from autograder import doctor
from autograder.grading import alone
from autograder.grading.run import ASLEEP, run_lab
from autograder.grading.seeds import seeds
from autograder.sessions import remote as sessions
from autograder.walls import memory, sandbox

pytestmark = pytest.mark.skipif(sandbox.tier() == "weak", reason=f"no sandbox on this system: {doctor.needs()}")
SEED_OF = seeds(b"", "")
SLEEPS = "import time\ndef double(f, x):\n    time.sleep(60)\n"
POLLS = "import time\ndef double(f, x):\n    while True:\n        time.sleep(0.05)\n"
LOCKED = "import threading\ndef double(f, x):\n    threading.Lock().acquire() and threading.Event().wait()\n"
LOOPS = "def double(f, x):\n    while True:\n        pass\n"
IN_A_THREAD = """
import threading
def loop():
    while True:
        pass
def double(f, x):
    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize(
    ("code", "asleep"),
    [
        (SLEEPS, True),
        pytest.param(POLLS, True, marks=pytest.mark.labs),
        pytest.param(LOCKED, True, marks=pytest.mark.labs),
        pytest.param(LOOPS, False, marks=pytest.mark.labs),
        (IN_A_THREAD, False),
    ],
    ids=["sleeps", "polls", "waits for an event", "loops", "loops in a thread"],
)
def test_only_work_is_asked_again(code, asleep, tiny, remote, solution):
    found = run_lab(tiny, remote(solution["mean"], solution["count"], code), SEED_OF)
    (late,) = [check for check in found[1].checks if check.kind == "timeout"]
    assert late.asleep == asleep
    assert (late.why == ASLEEP) == asleep
    assert alone.is_doubtful(found[1]) != asleep
    assert [result.points for result in found] == [60, 20]  # it costs its own check


@pytest.mark.labs
@pytest.mark.parametrize(("body", "asleep"), [("time.sleep(60)", True), ("while True: pass", False)])
def test_of_ranks_the_work_of_all_counts(body, asleep, remote):
    """Rank 1 sleeps or works while rank 0 waits for it."""
    code = f"import time\ndef f(comm):\n    if comm.rank:\n        {body}\n    comm.barrier()\n"
    session = remote(code)
    session.start_check(5.0)  # a check's usual limit: processors are clocked in hundredths of a second
    with pytest.raises(Exception, match="did not finish") as caught:
        session.student.ranks("f", 2, lambda rank: ())
    assert caught.value.asleep == asleep


@pytest.mark.parametrize(
    ("ran", "queued", "ranks", "undisturbed"),
    [(5.0, 0.0, 1, True), (4.8, 0.3, 1, True), (2.0, 0.0, 1, False), (5.0, 4.0, 1, False), (5.0, 0.0, 2, False)],
    ids=["alone", "nearly alone", "the checks computed, too", "a busy machine", "ranks"],
)
def test_which_answer_had_a_processor_to_itself(ran, queued, ranks, undisturbed, remote, monkeypatch):
    session = remote(LOOPS)
    monkeypatch.setattr(session, "work", lambda: session.worked + ran)
    monkeypatch.setattr(sessions, "waited", lambda clock: session.queued + queued)
    session.seconds, session.mates = 5.0, [session] * ranks
    assert session.is_undisturbed() == undisturbed


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("available", [8 << 30, 80 << 30], ids=["a small machine", "a large machine"])
def test_the_only_lane_does_not_repeat_what_was_alone(lanes, available, tiny, remote, solution, monkeypatch):
    monkeypatch.setattr(sessions.RemoteSession, "is_undisturbed", lambda session: True)
    session = remote(solution["mean"], solution["count"], LOOPS)
    found = run_lab(tiny, session, SEED_OF, lambda exercise, check: 0.1)
    monkeypatch.setattr(session.zygote, "memory", memory.allowance(lanes, available))
    asked = []
    monkeypatch.setattr(alone, "run_exercise", lambda *given: asked.append(given) or found[1])
    alone.ask_again(tiny, found, session, SEED_OF)
    assert len(asked) == (lanes > 1)
