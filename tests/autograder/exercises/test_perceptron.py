"""Lab 03's reference answers: their worked examples hold, and they pass whatever the seed."""

import doctest
import types

import pytest
import torch

from autograder import exercises
from autograder.authors import build
from hpcdl.nn.perceptron import with_bias

pytestmark = pytest.mark.labs

LAB = exercises.load("perceptron")


@pytest.fixture(scope="module")
def reference() -> dict:
    names = {"torch": torch, "with_bias": with_bias}
    for source in build.references("perceptron").values():
        exec(source, names)
    return names


@pytest.mark.parametrize(
    "name", [name for name in LAB.exercises if name != "unmask_fit"]
)  # test_unmasking has its input
def test_the_worked_example_in_the_docstring_is_true(reference, name):
    (example,) = doctest.DocTestFinder(recurse=False).find(reference[name], name, globs=reference)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_reference_passes_every_check_with_any_seed(reference, seed):
    student = types.SimpleNamespace(**reference)
    for exercise in LAB.exercises.values():
        for check in exercise.checks.values():
            check.function(student, torch.Generator().manual_seed(seed))
