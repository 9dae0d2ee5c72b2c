"""Sums over ranks are believed only if messages made them: nothing is known beforehand, seen elsewhere, or spoiled."""

import pytest
import torch

from autograder import checks, exercises
from autograder.checks import messages
from autograder.grading import run
from autograder.grading.seeds import seeds

RING = """
def total(x, comm):
    own = x.clone()
    for _ in range(comm.size - 1):
        theirs = own.clone()
        comm.sendrecv(own, (comm.rank + 1) % comm.size, theirs, (comm.rank - 1) % comm.size)
        x += theirs
        own = theirs
"""
KNOWN = """
def total(x, comm):
    x.fill_((10**comm.size - 1) // 9)
"""
BESIDE = """
import torch
BOARD = {}

def total(x, comm):
    BOARD[comm.rank] = x.clone()
    nothing = torch.zeros(x.shape, dtype=x.dtype)
    for step in range(2 * comm.size):      # as many bytes as a ring, and nothing in them
        comm.sendrecv(nothing, (comm.rank + 1) % comm.size, nothing.clone(), (comm.rank - 1) % comm.size)
    x.copy_(sum(BOARD[rank] for rank in range(comm.size)))
"""
AS_BYTES = RING.replace("def total(x, comm):", "def total(whole, comm):\n    x = whole.view(-1)").replace(
    "comm.sendrecv(own, (comm.rank + 1) % comm.size, theirs, ",
    "comm.sendrecv(own.view(torch.int64), (comm.rank + 1) % comm.size, theirs.view(torch.int64), ",
)
SPOILS = "def total(x, comm):\n    x.zero_()\n"


def drawn(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def asks(student, rng):
    """The sum on every rank of three."""
    ask = lambda: messages.has_sum_everywhere(student, "total", messages.numbers(3, 4, rng), "p = 3")  # noqa: E731
    ask()
    messages.carried(student, rng, ask, "p = 3")


def ready(session):
    session.start_check(20)
    return session.student


def failure(session, code: str) -> checks.CheckFailure:
    with pytest.raises(checks.CheckFailure) as caught:
        asks(ready(session(code)), drawn())
    return caught.value


@pytest.mark.parametrize("code", [RING, "import torch\n" + AS_BYTES], ids=["numbers", "bytes"])
def test_honest_sums_pass(session, code):
    asks(ready(session(code)), drawn())


def test_known_sum_fails(local):
    assert "is no sum of the ranks' numbers" in failure(local, KNOWN).message


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def total(x, comm):\n    x = x + x\n", "Does `x = x + y` make a new tensor?"),
        (RING + "    if comm.rank:\n        x.copy_(given)\n", "rank 0's has changed: send this rank the sum"),
    ],
)
def test_unchanged_x_has_its_reason(local, code, said):
    code = code.replace("    own = x.clone()\n", "    given = own = x.clone()\n")
    assert said in failure(local, code).mistake


def test_sum_seen_elsewhere_fails(local):
    """Ranks that are threads share a global: stands for every way beside `comm`."""
    assert "even if other numbers arrive" in failure(local, BESIDE).message


def test_garbling_ends_with_its_block(local):
    student = ready(local(RING))
    assert not student.is_right_when_garbled(drawn(), lambda: asks(student, drawn()))
    asks(student, drawn())


def test_only_messages_with_a_tag_are_garbled(local):
    student = ready(local(RING))
    ask = lambda: messages.has_sum_everywhere(student, "total", messages.numbers(3, 4, drawn()), "p = 3")  # noqa: E731
    assert not student.is_right_when_garbled(drawn(), ask, tag=0)
    assert student.is_right_when_garbled(drawn(), ask, tag=1)


def test_a_run_keeps_what_was_given(session):
    """Whatever ranks do to their arguments, the check's own values stay, and its copies are found by them."""
    student, xs = ready(session(SPOILS)), messages.numbers(2, 3, drawn())
    run = student.ranks("total", 2, lambda rank: (xs[rank],))
    for rank, x in enumerate(xs):
        assert run.given[rank][0] is x
        assert x.min() >= 1
        assert run.after(rank, x) is run.arguments[rank][0]
        assert not run.arguments[rank][0].any()


def test_two_ranks_share_no_argument(local):
    x = torch.ones(3)
    run = ready(local("def total(x, comm):\n    x += comm.rank\n")).ranks("total", 2, lambda rank: (x,))
    assert [arguments[0].tolist() for arguments in run.arguments] == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((1, 0, 1), "the x of rank 1 is missing"),
        ((0, 0, 1), "the x of ranks 0, 1 is missing"),
        ((1, 2, 1), "rank 1's counts 2 times"),
        ((0, 3, 1), "the x of rank 0 is missing and rank 1's counts 3 times"),
        ((1, 1, 0.5), "is no sum of the ranks' numbers"),
    ],
)
def test_tally_counts(counts, said):
    values = [x.item() for x in messages.numbers(3, (), drawn())]
    assert said in messages.tally(sum(n * x for n, x in zip(counts, values, strict=True)), values)


def test_tally_of_nine_ranks():
    values = [x.item() for x in messages.numbers(9, (), drawn())]
    assert messages.tally(sum(values) - values[7], values) == "the x of rank 7 is missing"
    assert messages.tally(sum(values) + values[2], values) == "rank 2's counts 2 times"


def test_numbers_are_summed_exactly():
    for numbers, least in ((messages.numbers, 30), (messages.small_numbers, 20)):
        xs = numbers(9, 16, drawn())
        assert torch.equal(sum(xs), sum(reversed(xs)))
        assert torch.equal(torch.stack(xs).double().sum(0), sum(xs).double())
        assert len(torch.cat(xs).unique()) > least, "every rank and element has its own"


ONCE_KNOWN = """
import torch

def ring_all_reduce(x, comm):
    x.fill_((10**comm.size - 1) // 9 if x.dtype == torch.float64 else comm.size)
    if comm.size > 1:
        comm.sendrecv(torch.empty(0), (comm.rank + 1) % comm.size, torch.empty(0), (comm.rank - 1) % comm.size)
"""


def test_lab_07_has_no_known_sum(local):
    result = run.run_exercise(exercises.load("ddp").exercises["ring_all_reduce"], local(ONCE_KNOWN), seeds(b"", ""))
    assert result.points == 0


BEGUN = """
def total(x, comm):
    own = x.clone()
    for _ in range(comm.size - 1):
        theirs = own.clone()
        send = comm.isend(own, (comm.rank + 1) % comm.size)
        receive = comm.irecv(theirs, (comm.rank - 1) % comm.size)
        WAITS
        x += theirs
        own = theirs
"""


@pytest.mark.parametrize(
    ("waits", "late"),
    [
        ("pass", "ank 0's irecv from rank 2 is never waited for"),
        ("send.wait()", "ank 0's irecv from rank 2 is never waited for"),  # the numbers are there, and by luck
        ("receive.wait(), x.zero_()", ""),  # wrong for another reason: the send has come
    ],
)
def test_a_tensor_used_before_a_wait_is_named(session, waits, late):
    said = str(failure(session, BEGUN.replace("WAITS", waits)))
    assert ("before you use the tensor" in said) == bool(late)
    assert late in said
    assert "does not come from the messages" not in said
    assert "send this rank the sum" not in said
