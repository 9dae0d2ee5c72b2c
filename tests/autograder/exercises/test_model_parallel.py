"""Lab `model_parallel`: its answers' worked examples hold, any seed will do, and its oracles agree with others."""

import doctest

import pytest
import torch

from autograder import exercises
from autograder.exercises.model_parallel import pipelines, published
from autograder.grading.reference import statements
from autograder.grading.run import run_exercise
from autograder.sessions.local import LocalSession
from hpcdl.comm import simulate
from hpcdl.cost.pipeline import play
from hpcdl.parallel import schedules

pytestmark = pytest.mark.labs

LAB = exercises.load("model_parallel")
EXAMPLES = ("share", "volume", "one_weird_trick", "gpipe", "one_f_one_b", "interleaved", "zb_h1", "bubble", "design")


@pytest.fixture(scope="module")
def reference() -> dict:
    names: dict = {"__name__": "reference", "simulate": simulate, "torch": torch}
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


@pytest.mark.parametrize("name", ["one_f_one_b", "zb_h1", "zb_h2"])
@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 3), (4, 4), (5, 12), (6, 3)])
def test_the_checks_schedules_and_simulation_are_the_librarys(name, p, m):
    orders = getattr(published, name)(p, m)
    assert orders == getattr(schedules, name)(p, m)
    ours, theirs = pipelines.play(orders, 3.0, 2.0, 1.0, 0.25), play(orders, 3.0, 2.0, 1.0, message=0.25)
    assert ours.makespan == pytest.approx(theirs.makespan)
    assert ours.seconds == pytest.approx(theirs.seconds)
    assert [pipelines.held(order) for order in orders] == [schedules.in_flight(order) for order in orders]


def test_what_is_published_stands_in_the_library_too():
    from hpcdl.cost.published.pipelines import ZERO_BUBBLE

    for p, m, seconds, (one, h1, h2) in published.TABLE_5:
        times, printed, _ = next(row[3][m] for row in ZERO_BUBBLE.values() if row[0] == p)
        assert times == seconds
        assert [printed[0], *printed[2:]] == pytest.approx([100 * one, 100 * h1, 100 * h2])


def test_a_lab_has_a_hundred_points():
    assert LAB.points == 100
