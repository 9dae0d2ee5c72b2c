"""A number removes an axis, a slice keeps it. Oracle: element by element."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.tensors.drawing import built, integer, whole
from autograder.exercises.tensors.memory import in_every_layout

exercise = Exercise("pick", points=10, minutes=3)


def picked(x: torch.Tensor, c: int, i: int, step: int) -> torch.Tensor:
    n, _, h, w = x.shape
    rows = range(i, h, step)
    return built((n, len(rows), w), x.dtype, lambda image, row, column: x[image, c, rows[row], column])


def mistakes(x: torch.Tensor, c: int, i: int, step: int) -> dict:
    """What is left of x if the brackets are filled in another way; for x with as many images as channels."""
    return {
        "This is image c, not channel c: the first axis counts images, the second one channels.": x[c, :, i::step],
        "A slice keeps its axis, even if its length is 1. A number in its place removes it.": x[:, c : c + 1, i::step],
        "These are columns: the row is the axis before the last one.": x[:, c, :, i::step],
        "a:b:c is start, stop, step. With one colon the second number is the stop.": x[:, c, i:step],
        "You take every step-th row first and then skip i of them: start and step belong in one slice.": x[
            :, c, ::step
        ][:, i:],
    }


@exercise.check(points=4)
def the_rows_of_one_channel(student, rng):
    "Channel c of every image, every step-th row from row i on."
    x, c, i = whole(rng, 3, 3, 7, 7), integer(rng, 1, 2), integer(rng, 1, 2)
    got = student.pick(x.clone(), c, i, 3)
    name = f"pick(x, {c}, {i}, 3) of x (3, 3, 7, 7)"
    checks.close(got, picked(x, c, i, 3), name=name, mistakes=mistakes(x, c, i, 3))


@exercise.check(points=3)
def any_shape(student, rng):
    "Other sizes, one row that is left, whole numbers, one image."
    for shape, c, i, step, dtype in (
        ((2, 3, 8, 5), 2, 0, 2, torch.float64),
        ((4, 2, 3, 6), 1, 2, 4, torch.int64),
        ((1, 3, 5, 4), 1, 1, 2, torch.float32),
    ):
        x = whole(rng, *shape, dtype=dtype)
        name = f"pick(x, {c}, {i}, {step}) of x {shape}"
        checks.close(student.pick(x.clone(), c, i, step), picked(x, c, i, step), name=name)


@exercise.check(points=3)
def a_view(student, rng):
    "No number is copied, whatever x's layout in memory: the result is a view of x."
    x, i = whole(rng, 2, 3, 7, 4), integer(rng, 1, 3)
    in_every_layout(student, "pick", (x, 1, i, 2), picked(x, 1, i, 2))
