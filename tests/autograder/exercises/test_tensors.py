"""Lab 00: the harness lays tensors out as it says, and the examples are true."""

import doctest
import functools
import importlib

import pytest
import torch

from autograder import exercises
from autograder.authors import build
from autograder.grading import run
from autograder.grading.seeds import seeds
from autograder.inside.tensor_harnesses import LAYOUTS, share_memory
from autograder.sessions.local import LocalSession


@functools.cache
def solved() -> str:
    return "\n".join(build.references("tensors").values())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 3, 4, 5), (0, 2)])
def test_a_layout_changes_where_numbers_lie_and_not_the_numbers(layout, shape):
    x = torch.arange(torch.Size(shape).numel()).view(shape)
    laid = LAYOUTS[layout](x)
    assert torch.equal(laid, x)
    assert not share_memory(laid, x)
    if len(shape) > 1 and x.numel():
        assert laid.is_contiguous() == (layout == "rows")


def test_memory_is_shared_by_views_alone():
    x = torch.arange(6)
    assert all(share_memory(x, y) for y in (x, x[3:], x.view(2, 3).T, x[:1].expand(4)))
    assert not any(share_memory(x, y) for y in (x.clone(), x[[0, 1]], x[:0].clone()))
    assert not share_memory(torch.empty(0), torch.empty(0))


@pytest.mark.parametrize("name", exercises.load("tensors").functions)
def test_the_example_in_the_docstring_is_true(name):
    namespace: dict = {"torch": torch}
    exec(solved(), namespace)
    (example,) = doctest.DocTestFinder(recurse=False).find(namespace[name], name, globs=namespace)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_a_decorator_that_the_library_uses_too_accuses_nobody():
    importlib.import_module("hpcdl.training.mixed_precision")  # has methods under @torch.no_grad()
    namespace: dict = {}
    code = "@torch.no_grad()\ndef descend(w, lr):\n    w -= lr * w.grad\n    w.grad = None"
    exec(f"import torch\n{solved()}\n{code}", namespace)
    exercise = exercises.load("tensors").exercises["grads"]
    result = run.run_exercise(exercise, LocalSession(namespace), seeds(b"", ""), hidden=False)
    assert result.points == exercise.points, [(c.title, c.message, c.mistake) for c in result.checks if not c.passed]
