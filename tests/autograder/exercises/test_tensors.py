"""Lab 00: a puzzle has many right answers, and all of them pass; the harness lays tensors out as it says."""

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

RIGHT = [
    ("pick", "def pick(x, c, i, step):\n    return x.select(1, c)[:, i::step, :]"),
    ("pick", "def pick(x, c, i, step):\n    return x[:, c][..., i::step, :]"),
    ("by_channel", "def by_channel(x):\n    return x.permute(1, 0, 2, 3).flatten(1)"),
    ("by_channel", "def by_channel(x):\n    return x.swapaxes(0, 1).contiguous().view(x.shape[1], -1)"),
    ("stretch", "def stretch(b, x):\n    return b.view(1, -1, 1, 1).expand_as(x)"),
    ("stretch", "def stretch(b, x):\n    return torch.broadcast_to(b.reshape(-1, 1, 1), x.shape)"),
    ("safe_ratio", "def safe_ratio(a, b):\n    return torch.where(b != 0, a / b, 0.0)"),
    ("safe_ratio", "def safe_ratio(a, b):\n    return (a / b).masked_fill(b == 0, 0)"),
    ("sums", "def shares(x):\n    return x / x.sum(1)[:, None]"),
    ("sums", "def shares(x):\n    return (x.T / x.sum(1)).T"),
    ("sums", "def mix(w, x):\n    return (w[:, :, None, None] * x[:, None]).sum(2)"),
    ("sums", "def mix(w, x):\n    return torch.tensordot(x, w, ([1], [1])).permute(0, 3, 1, 2)"),
    (
        "windows",
        """def windows(x, size, step):
    count = (x.shape[-1] - size) // step + 1
    *before, last = x.stride()
    return x.as_strided((*x.shape[:-1], count, size), (*before, step * last, last))""",
    ),
    (
        "average_in_place",
        "def average_in_place(xs):\n    m = torch.stack(xs).mean(0)\n    for x in xs:\n        x[...] = m",
    ),
    (
        "average_in_place",
        """def average_in_place(xs):
    for x in xs[1:]:
        xs[0].add_(x)
    xs[0] /= len(xs)
    for x in xs[1:]:
        x.copy_(xs[0])""",
    ),
    ("cut", "def cut(x):\n    return (x.view(torch.int32) & -65536).view(x.dtype)"),
    (
        "cut",
        "def cut(x):\n    bits = x.clone().view(torch.int32)\n    bits &= ~0xFFFF\n    return bits.view(torch.float32)",
    ),
    ("grads", "def descend(w, lr):\n    w.data -= lr * w.grad\n    w.grad = None"),
    ("grads", "@torch.no_grad()\ndef descend(w, lr):\n    w.sub_(lr * w.grad)\n    w.grad.zero_()"),
    (
        "grads",
        """def watch(params, ready):
    def hook(i):
        return lambda param: ready(i)
    for i, param in enumerate(params):
        param.register_post_accumulate_grad_hook(hook(i))""",
    ),
    (
        "epochs",
        """def epochs(n, size, times, order):
    for _ in range(times):
        indices = order(n)
        for start in range(0, n, size):
            yield indices[start : start + size]""",
    ),
    (
        "epochs",
        "def epochs(n, size, times, order):\n    return (b for _ in range(times) for b in order(n).split(size))",
    ),
]


@functools.cache
def solved() -> str:
    return "\n".join(build.references("tensors").values())


@pytest.mark.parametrize(("name", "code"), RIGHT)
def test_another_right_answer_has_full_points(name, code):
    namespace: dict = {}
    exec(f"import torch\n{solved()}\n{code}", namespace)
    exercise = exercises.load("tensors").exercises[name]
    result = run.run_exercise(exercise, LocalSession(namespace), seeds(b"", ""), hidden=False)
    assert result.points == exercise.points, [(c.title, c.message, c.mistake) for c in result.checks if not c.passed]


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
    test_another_right_answer_has_full_points(
        "grads", "@torch.no_grad()\ndef descend(w, lr):\n    w -= lr * w.grad\n    w.grad = None"
    )
