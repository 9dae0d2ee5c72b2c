"""A wrong number on ranks is no riddle where a message was used before it was complete: the check says so."""

import pytest
import torch

from autograder import checks
from autograder.authoring import Check
from autograder.grading.run import OVERLAPPING, UNFINISHED, run_check
from autograder.results import CheckResult

SHIFT = """
import torch
def shift(x, comm):
    right, left, got = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size, x.new_zeros(x.shape)
{body}
"""
WAITS = "    a, b = comm.isend(x, right), comm.irecv(got, left)\n    a.wait()\n    b.wait()\n    return "
NEVER = "    comm.isend(x, right), comm.irecv(got, left)\n    return "
LATE = WAITS.replace("\n    a.wait", "\n    early = got + 0\n    a.wait", 1) + "early + 0 * "
SAME = "    a, b = comm.isend(x, right), comm.irecv(x, left)\n    a.wait(), b.wait()\n    return 0 * "


def shifted(student, rng):
    """Each rank has its left neighbour's numbers."""
    run = student.ranks("shift", 3, lambda rank: (torch.full((2,), rank + 1.0),))
    for rank, got in enumerate(run.results):
        checks.close(got, torch.full((2,), (rank - 1) % 3 + 1.0), name=f"x on rank {rank}")


def asked_once_more(student, rng):
    """A run whose messages are complete comes before the failure."""
    student.ranks("shift", 3, lambda rank: (torch.full((2,), rank + 1.0),))
    run = student.ranks("shift", 1, lambda rank: (torch.ones(2),))
    checks.close(run.results[0], torch.zeros(2), name="x")


@pytest.fixture(params=["local", "remote"])
def verdict(request):
    start = request.getfixturevalue(request.param)

    def judge(body: str, function=shifted) -> CheckResult:
        check = Check(function.__name__, function, 1)
        found = CheckResult(check.name, check.title, 1, seed=7)
        run_check(check, found, start(SHIFT.format(body=body)), 10)
        return found

    return judge


def test_a_message_that_is_not_waited_for_is_named(verdict):
    found = verdict(NEVER + "got + 0")
    assert found.mistake == UNFINISHED
    assert found.why.startswith("Rank 0's isend to rank 1 is never waited for.")
    assert found.message.startswith("Element [0] of x on rank 0 is 0, expected 3.")


def test_a_tensor_of_two_messages_is_named(verdict):
    found = verdict(SAME + "x")
    assert found.mistake == OVERLAPPING
    assert found.why.startswith("Rank 0's irecv from rank 2 begins in memory that another message still uses.")


@pytest.mark.parametrize("body", [WAITS + "2 * got", LATE + "got"], ids=["waits", "reads too soon"])
def test_only_what_was_seen_is_said(verdict, body):
    found = verdict(body)
    assert (found.status, found.mistake, found.why) == ("failed", "", "")


def test_a_named_cause_comes_first(verdict):
    def named(student, rng):
        """Each rank has its left neighbour's numbers."""
        run = student.ranks("shift", 3, lambda rank: (torch.full((2,), rank + 1.0),))
        checks.close(
            run.results[0], torch.full((2,), 3.0), name="x", mistakes={"Twice as much.": torch.full((2,), 6.0)}
        )

    found = verdict(NEVER + "torch.full((2,), 6.0)", named)
    assert (found.mistake, found.why) == ("Twice as much.", "")


def test_the_run_of_another_check_says_nothing(verdict):
    """Two checks in one session: what the first saw is forgotten."""
    once = "    if comm.size > 1:\n        comm.isend(x, right), comm.irecv(got, left)\n    return got + 1"
    assert verdict(once, asked_once_more).mistake == ""
    assert verdict(WAITS + "got").passed
