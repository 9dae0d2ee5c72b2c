"""Mutants change the solution alone, one place at a time, and each can be compiled."""

import ast

import pytest

from autograder import exercises
from autograder.authors import build, mutants
from autograder.authors.mutations import OPERATORS

SOLUTION = '''
def given(x):
    return x + 1


def solve(xs, comm):
    """The sum."""
    # BEGIN SOLUTION
    total, kept = 0.5, []
    for x in range(1, len(xs)):
        if x > 2 and xs:
            total += xs[x:][0]
    comm.barrier()
    xs += torch.empty_like(xs).mul_(comm.rank)
    xs.grad = None
    comm.sendrecv(xs, 1, kept, 2)
    total = 2 * given(*xs).real
    return total, xs.clone()
    # END SOLUTION
'''


def found() -> list[mutants.Mutant]:
    return list(mutants.mutants_of("solve", SOLUTION))


def test_each_is_another_program():
    codes = [mutant.code for mutant in found()]
    assert len(set(codes)) == len(codes)
    assert ast.unparse(ast.parse(SOLUTION)) not in codes
    for code in codes:
        compile(code, "mutant", "exec")


def test_what_is_given_stays():
    given = ast.unparse(ast.parse(SOLUTION).body[0])
    assert all(mutant.code.startswith(given) for mutant in found())


@pytest.mark.parametrize(
    "change",
    [
        "total, kept = (0.5, [])  ->  total, kept = (1.5, [])",
        "total, kept = (0.5, [])  ->  total, kept = (-0.5, [])",
        "total, kept = (0.5, [])  ->  total, kept = (0.5, globals().setdefault('(total, kept) 1', []))",
        "for x in range(1, len(xs)):  ->  for x in range(1, len(xs) + 1):",
        "for x in range(1, len(xs)):  ->  for x in reversed(list(range(1, len(xs)))):",
        "if x > 2 and xs:  ->  if x >= 2 and xs:",
        "if x > 2 and xs:  ->  if x > 2 or xs:",
        "if x > 2 and xs:  ->  if False:",
        "total += xs[x:][0]  ->  total -= xs[x:][0]",
        "total += xs[x:][0]  ->  total += xs[x + 1:][0]",
        "total += xs[x:][0]  ->  total += xs[:][0]",
        "comm.barrier()  ->  pass",
        "comm.barrier()  ->  comm.barrier(); comm.barrier()",
        "xs += torch.empty_like(xs).mul_(comm.rank)  ->  xs = xs + torch.empty_like(xs).mul_(comm.rank)",
        "xs += torch.empty_like(xs).mul_(comm.rank)  ->  xs += xs.mul_(comm.rank)",
        "xs += torch.empty_like(xs).mul_(comm.rank)  ->  xs += torch.empty_like(xs).mul(comm.rank)",
        "xs += torch.empty_like(xs).mul_(comm.rank)  ->  xs += torch.empty_like(xs).mul_(comm.size - 1 - comm.rank)",
        "xs.grad = None  ->  pass",
        "comm.sendrecv(xs, 1, kept, 2)  ->  comm.sendrecv(xs, 2, kept, 1)",
        "return (total, xs.clone())  ->  return (total, xs)",
        "return (total, xs.clone())  ->  return (xs.clone(), total)",
        "return (total, xs.clone())  ->  return",
    ],
)
def test_usual_slips_are_among_them(change):
    assert change in [mutant.change for mutant in found()]


def test_there_are_twenty_operators():
    assert len(OPERATORS) >= 20


@pytest.mark.each_lab("gradient_descent")
@pytest.mark.parametrize("slug", exercises.LABS)
def test_equivalents_are_mutants(slug):
    """No reason outlives the mutant that it is about."""
    known, every = mutants.equivalent(slug), mutants.mutants(slug) if mutants.equivalent(slug) else []
    changes = {(mutant.exercise, mutant.change) for mutant in every}
    assert {(name, change) for name, listed in known.items() for change in listed} <= changes
    assert set(known) <= set(build.marked(slug))
