"""Axes change places, then they become one: permute and reshape. Oracle: element by element."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.tensors.drawing import built, whole
from autograder.exercises.tensors.memory import COPIED, called

NOT_IN_ONE_STEP = (
    "`view` never copies, and no strides describe this result: in memory the numbers of a channel are scattered, "
    "image by image. `reshape` copies if it must."
)
exercise = Exercise(
    "by_channel",
    points=10,
    minutes=4,
    meanings={"view size is not compatible": NOT_IN_ONE_STEP},
)


def rows_of_channels(x: torch.Tensor) -> torch.Tensor:
    """Row c: channel c of image 0, row after row, then of image 1, ..."""
    n, c, h, w = x.shape

    def element(channel: int, place: int) -> torch.Tensor:
        image, pixel = divmod(place, h * w)
        return x[image, channel, pixel // w, pixel % w]

    return built((c, n * h * w), x.dtype, element)


def mistakes(x: torch.Tensor) -> dict:
    c = x.shape[1]
    return {
        "The numbers are cut in the order of memory, image by image: a row of yours mixes channels. Bring the channels "
        "to the front first (transpose or permute), then reshape.": x.reshape(c, -1),
        "Each image runs column by column: height comes before width.": x.permute(1, 0, 3, 2).reshape(c, -1),
        "The images alternate pixel by pixel: the order is (channel, image, row, column).": x.permute(
            1, 2, 3, 0
        ).reshape(c, -1),
        "The axes of images, rows and columns are still apart: reshape makes one of them.": x.transpose(0, 1),
        "The result is transposed: make a row for each channel.": x.transpose(0, 1).reshape(c, -1).T,
    }


@exercise.check(points=4)
def a_row_for_each_channel(student, rng):
    "Row c holds channel c of image 0, of image 1, ..., each row by row."
    x = whole(rng, 2, 3, 2, 2)
    got = student.by_channel(x.clone())
    checks.close(got, rows_of_channels(x), name="by_channel(x) of x (2, 3, 2, 2)", mistakes=mistakes(x))


@exercise.check(points=3)
def any_memory(student, rng):
    "Other sizes, one row, x that is not contiguous."
    for shape, layout in (((4, 2, 3, 5), "rows"), ((2, 3, 1, 2), "rows"), ((3, 2, 4, 3), "columns")):
        x = whole(rng, *shape, dtype=torch.int64)
        got, _ = called(student, "by_channel", x, layout=layout)
        name = f"by_channel(x) of x {shape}" + ", not contiguous" * (layout != "rows")
        checks.close(got, rows_of_channels(x), name=name, mistakes=mistakes(x))


@exercise.check(points=3)
def copies_only_where_it_must(student, rng):
    "With one image the numbers are already in the right order: nothing is copied."
    x = whole(rng, 1, 3, 4, 2)
    got, (shares,) = called(student, "by_channel", x)
    checks.close(got, rows_of_channels(x), name="by_channel(x) of x (1, 3, 4, 2)", mistakes=mistakes(x))
    checks.that(shares, f"by_channel(x) of one image: {COPIED}", got="a copy", expected="a view of x's memory")
