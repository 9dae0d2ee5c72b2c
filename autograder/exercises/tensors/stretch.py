"""What broadcasting computes with: a vector repeated along three axes, with no memory. Oracle: element by element."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.tensors.drawing import built, whole
from autograder.exercises.tensors.memory import called

OTHER_AXIS = (
    "Shapes are aligned at their right ends, so a vector meets the last axis, the columns. Give b two axes of length "
    "1 after its own: (C,) becomes (C, 1, 1)."
)
COPIED = (
    "The numbers are right, but each of them is stored many times. `expand` lets an axis of length 1 look long, with "
    "stride 0; `repeat` and arithmetic write copies."
)
exercise = Exercise(
    "stretch",
    points=10,
    minutes=3,
    meanings={"must match the existing size": OTHER_AXIS, "The expanded size": OTHER_AXIS},
)


def stretched(b: torch.Tensor, shape: tuple) -> torch.Tensor:
    return built(shape, b.dtype, lambda n, c, row, column: b[c])


def mistakes(b: torch.Tensor, shape: tuple) -> dict:
    """Where b lies along another axis; for shapes of four equal sizes."""
    return {
        OTHER_AXIS: b.expand(shape),
        "b lies along the rows: it needs two axes of length 1 after its own, you gave it one.": b[:, None].expand(
            shape
        ),
        "b lies along the images: it needs two axes of length 1 after its own, you gave it three.": b[
            :, None, None, None
        ].expand(shape),
        "b has its axes of length 1; now stretch them to x's shape, with expand.": b[:, None, None],
    }


@exercise.check(points=4)
def along_the_channels(student, rng):
    "b's number c everywhere in channel c, also where all sizes are equal and a wrong axis would fit."
    b, shape = whole(rng, 3), (3, 3, 3, 3)
    got = student.stretch(b.clone(), torch.zeros(shape))
    checks.close(got, stretched(b, shape), name="stretch(b, x) of x (3, 3, 3, 3)", mistakes=mistakes(b, shape))


@exercise.check(points=3, needs="along_the_channels")
def any_shape(student, rng):
    "Other sizes, one channel, one image, whole numbers; b keeps its dtype."
    for shape, dtype in (((2, 3, 4, 5), torch.float64), ((2, 1, 3, 2), torch.float32), ((1, 2, 3, 3), torch.int64)):
        b = whole(rng, shape[1], dtype=dtype)
        got = student.stretch(b.clone(), torch.zeros(shape))
        checks.close(got, stretched(b, shape), name=f"stretch(b, x) of x {shape}")


@exercise.check(points=3, needs="along_the_channels")
def no_memory(student, rng):
    "No number is copied, whatever b's layout in memory."
    for layout in ("rows", "gaps"):
        b, shape = whole(rng, 3), (2, 3, 4, 5)
        got, (shares, _) = called(student, "stretch", b, torch.zeros(shape), layout=layout)
        checks.close(got, stretched(b, shape), name="stretch(b, x) of x (2, 3, 4, 5)")
        checks.that(shares, COPIED, got="a memory of its own", expected=f"b's memory, {b.numel()} numbers")
