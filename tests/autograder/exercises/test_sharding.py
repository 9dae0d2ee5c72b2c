"""Lab `sharding`: its answers' worked examples hold, any seed will do, and its oracles agree with others."""

import doctest

import pytest
import torch

from autograder import exercises
from autograder.exercises.sharding import checkpointed, offload, save_load
from autograder.grading.reference import statements
from autograder.grading.run import run_exercise
from autograder.sessions.local import LocalSession
from autograder.sessions.ranks import Ranks
from hpcdl.comm import simulate
from hpcdl.sharding import plan

pytestmark = pytest.mark.labs

LAB = exercises.load("sharding")
EXAMPLES = ("memory", "largest", "activations", "plan", "bounds", "offload")


@pytest.fixture(scope="module")
def reference() -> dict:
    names: dict = {"__name__": "reference", "simulate": simulate}
    for _, code in statements(LAB.slug, LAB.functions):
        exec(code, names)
    return names


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_worked_example_in_the_docstring_is_true(reference, name):
    (example,) = doctest.DocTestFinder(recurse=False).find(reference[name], name, globs=reference)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LAB.exercises)
def test_the_reference_passes_every_check_with_any_seed(reference, name, seed):
    result = run_exercise(LAB.exercises[name], LocalSession(reference), lambda check: 1000 * seed + len(check))
    assert not [(check.name, check.message, check.detail) for check in result.checks if not check.passed]


@pytest.mark.parametrize("seed", range(5))
def test_the_fewest_seconds_of_all_plans_are_the_librarys(seed):
    rng = torch.Generator().manual_seed(seed)
    nbytes = torch.randint(1, 60, (9,), generator=rng).tolist()
    seconds = torch.rand(9, generator=rng).tolist()
    best = sum(seconds[i] for i in plan(nbytes, seconds, 100))
    assert checkpointed.fewest_seconds(nbytes, seconds, 100) == pytest.approx(best)


@pytest.mark.parametrize("room", [1, 2, 3, 5])
def test_ticks_and_the_references_recurrence_agree(reference, room):
    compute, transfer = offload.UNEVEN
    got = reference["offload"]([float(c) for c in compute], transfer, 1.0, room)
    assert got == offload.ticks(compute, transfer, room)


def test_a_disk_at_a_moment_has_what_was_done_until_then():
    state = {"weights": torch.ones(2)}
    slow = [("write", "new", state, 0.0, 4.0)]
    quick = [("write", "to-be", {"step": 2}, 0.0, 1.0), ("rename", "to-be", "manifest", 1.0, 1.0)]
    run = Ranks([slow, quick], 4.0, None, [], [])
    before = {"manifest": {"step": 1}}
    assert save_load.after(run, before, 0.5) == {**before, "to-be": None, "new": None}
    assert save_load.after(run, before, 2.0) == {"manifest": {"step": 2}, "new": None}
    assert save_load.after(run, before) == {"manifest": {"step": 2}, "new": state}
    assert save_load.moments(run) == [0.5, 1.0, 2.0, 4.0]


def test_a_lab_has_a_hundred_points():
    assert LAB.points == 100
