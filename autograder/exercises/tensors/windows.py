"""All windows of a signal, without a copy. Oracle: element by element."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.tensors.drawing import built, whole
from autograder.exercises.tensors.memory import in_every_layout
from autograder.inside.tensor_harnesses import LAYOUTS

exercise = Exercise(
    "windows",
    points=10,
    minutes=4,
    meanings={
        "maximum size for tensor at dimension": "The axis is shorter than a window. Is it the last one?",
        "is invalid for input of size": "view and reshape cut a memory into pieces that do not overlap; windows do. "
        "unfold steps through the memory.",
        "setStorage": "as_strided asks for cells beyond the memory of x: count the windows and their strides again.",
    },
)


def all_windows(x: torch.Tensor, size: int, step: int) -> torch.Tensor:
    *before, n = x.shape
    count = len(range(0, n - size + 1, step))
    return built((*before, count, size), x.dtype, lambda *at: x[(*at[:-2], at[-2] * step + at[-1])])


def mistakes(x: torch.Tensor, size: int, step: int) -> dict:
    found = all_windows(x, size, step)
    return {
        "The last window is missing: the last start is n - size, and range(n - size + 1) has it.": found[..., :-1, :],
        "Your windows move by 1: the third argument of unfold is the step.": all_windows(x, size, 1),
        "size and step are exchanged: unfold(dim, size, step).": all_windows(x, step, size),
        "Your windows do not overlap: you step by size instead of step.": all_windows(x, size, size),
        "Each window is a column: a window's numbers belong along the last axis.": found.transpose(-1, -2),
    }


@exercise.check(points=4)
def windows_overlap(student, rng):
    "size numbers each, step apart, along the last axis."
    for step in (2, 3, 1):
        x = whole(rng, 2, 9)
        got = student.windows(x.clone(), 4, step)
        wrong = mistakes(x, 4, step)
        checks.close(got, all_windows(x, 4, step), name=f"windows(x, 4, {step}) of x (2, 9)", mistakes=wrong)


@exercise.check(points=3)
def edges(student, rng):
    "Only one window, windows of one number, steps longer than a window, one, three or four axes, whole numbers."
    for shape, size, step, dtype in (
        ((5,), 5, 1, torch.float32),
        ((2, 3, 6), 1, 1, torch.float64),
        ((7,), 2, 3, torch.int64),
        ((2, 1, 2, 4), 2, 1, torch.float32),
    ):
        x = whole(rng, *shape, dtype=dtype)
        name = f"windows(x, {size}, {step}) of x {shape}"
        checks.close(student.windows(x.clone(), size, step), all_windows(x, size, step), name=name)


@exercise.check(points=3)
def views_of_any_memory(student, rng):
    "No number is copied, whatever x's layout in memory: the windows are a view of x."
    x = whole(rng, 3, 8)
    wrong = {
        "You count cells of memory as if x were stored row after row. as_strided needs x's own strides, `x.stride()`; "
        f"unfold uses them by itself (x with its numbers {where}).": as_if_contiguous(x, layout)
        for layout, where in {"columns": "column after column", "gaps": "in every second cell"}.items()
    }
    gaps = LAYOUTS["gaps"](x)
    begin = (
        "x need not begin at cell 0 of its memory: the last argument of as_strided is the cell where it begins. "
        "Leave it out."
    )
    wrong[begin] = gaps.as_strided((3, 3, 3), (*gaps.stride()[:-1], 2 * gaps.stride(-1), gaps.stride(-1)), 0)
    in_every_layout(student, "windows", (x, 3, 2), all_windows(x, 3, 2), wrong)


def as_if_contiguous(x: torch.Tensor, layout: str) -> torch.Tensor:
    """Windows of 3, 2 apart, of x (3, 8) in that layout, by the strides that it would have row after row."""
    return LAYOUTS[layout](x).as_strided((3, 3, 3), (8, 2, 1))
