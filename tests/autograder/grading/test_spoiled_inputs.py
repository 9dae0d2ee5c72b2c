"""A check may compute what it expects after the call: code that spoils its inputs gains nothing by that."""

import pytest
import torch

from autograder import checks, show
from autograder.authoring import Check
from autograder.grading.run import run_check
from autograder.results import CheckResult

HONEST = "def double(x):\n    return 2 * x\n"
SPOILS = "def double(x):\n    x.zero_()\n    return x.clone()\n"
SPOILS_A_LIST = "def total(xs):\n    xs.clear()\n    return 0.0\n"
CARELESS = "def double(x):\n    y = 2 * x\n    x += 1\n    return y\n"


def expects_afterwards(student, rng):
    """Twice x."""
    x = torch.randn(3, generator=rng)
    checks.close(student.double(x), 2 * x, name="double(x)")


def expects_first(student, rng):
    """Twice x."""
    x = torch.randn(3, generator=rng)
    expected = 2 * x
    checks.close(student.double(x), expected, name="double(x)")


def sums_afterwards(student, rng):
    """The sum."""
    xs = [1.0, 2.0]
    checks.close(student.total(xs), float(sum(xs)), name="total(xs)")


def verdict(function, session) -> CheckResult:
    check = Check(function.__name__, function, 1)
    result = CheckResult(check.name, check.title, 1, seed=7)
    run_check(check, result, session, 5)
    return result


@pytest.mark.parametrize("check", [expects_afterwards, expects_first])
def test_zeroed_inputs_fail(session, check):
    assert not verdict(check, session(SPOILS)).passed


def test_a_list_is_protected_too(session):
    assert not verdict(sums_afterwards, session(SPOILS_A_LIST)).passed


def test_the_message_says_what_the_code_did(session):
    assert "changes its arguments" in verdict(expects_afterwards, session(SPOILS)).mistake


def test_honest_and_careless_code_pass(session):
    assert verdict(expects_afterwards, session(HONEST)).passed
    assert verdict(expects_first, session(CARELESS)).passed


BAD: list[int] = []


def in_three_calls(student, rng):
    """Each time twice x; the bad one of the three is asked to stay as it was."""
    for size in (1, 2, 3):
        x = torch.ones(size)
        checks.close(student.double(x.clone()), 2 * x, name="double(x)")
        if size in BAD:
            checks.leaves_alone(student.double, x=x)


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_the_call_is_the_one_that_failed(session, bad, monkeypatch):
    """Though the check could run on with copies, up to its last call."""
    monkeypatch.setattr(f"{__name__}.BAD", [bad])
    found, x = verdict(in_three_calls, session(CARELESS)), show.show(torch.ones(bad))
    assert (found.call, found.expected) == (f"double({x})", f"x as it was: {x}")
    assert not found.mistake  # one sentence says that an argument was changed


def uses_x_again(student, rng):
    """Twice x, two times, of three x."""
    for size in (1, 2, 3):
        x = torch.ones(size)
        once = student.double(x)
        checks.close(student.double(x), once, name="double(x), again")


def test_the_call_is_the_one_that_failed_where_copies_help(session):
    found = verdict(uses_x_again, session(CARELESS))
    assert "changes its arguments" in found.mistake
    assert found.call == f"double({show.show(torch.full((1,), 2.0))})"
