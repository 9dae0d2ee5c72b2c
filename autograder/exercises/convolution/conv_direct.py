"""The convolution by its formula. Oracle: torch's, in float64."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.convolution.calls import STRIDES, called, check_convolution
from autograder.exercises.convolution.drawing import Sizes, images, problems, whole
from autograder.exercises.convolution.libraries import OWN
from autograder.exercises.convolution.oracles import conv
from autograder.exercises.convolution.outputs import check_output
from autograder.exercises.drawing import F64, whole_number

HUGE = 2.0**60
exercise = Exercise("conv_direct", points=10, minutes=10, **OWN)


def check_direct(student, rng, sizes: Sizes, dtype=F64, **options) -> None:
    """The student's convolution against torch's; and a huge pixel changes only the windows that hold it, while a
    transform mixes all pixels."""
    name, (stride, padding) = called("conv_direct", options), (options.get("stride", 1), options.get("padding", 0))
    check_convolution(student.conv_direct, rng, sizes, name, dtype, **options)
    x, w = images(rng, *sizes)
    x[tuple(whole_number(rng, 0, length - 1) for length in x.shape)] = HUGE
    got, right = student.conv_direct(x.clone(), w.clone(), **options), conv(x, w, stride, padding)
    checks.close(got, right, name=f"{name} of images with one huge pixel", rtol=1e-9, atol=1e-9 * HUGE)
    apart = conv((x == HUGE).to(F64), torch.ones_like(w), stride, padding) == 0
    if apart.any():
        checks.close(
            got[apart],
            right[apart],
            name=f"{name} where the window has no part of the huge pixel",
            why=f"One pixel of x is {HUGE:.0e}. The sum over a window reads no other pixels. A transform of the whole "
            "image does, and its rounding errors are as large as these outputs.",
        )


@exercise.check(points=3)
def the_lectures_formula(student, rng):
    "One image, one filter: each output is the sum of the products under the window."
    x, w = torch.arange(1.0, 10.0, dtype=F64).view(1, 1, 3, 3), whole(rng, 1, 1, 2, 2)
    check_output(student.conv_direct(x.clone(), w.clone()), x, w, name="conv_direct(x, w)")
    for sizes in ((1, 1, 5, 7, 1, 3, 3), (1, 1, 5, 7, 1, 2, 3), (1, 1, 6, 4, 1, 4, 1)):
        check_direct(student, rng, sizes)


@exercise.check(points=3, needs="the_lectures_formula")
def channels_are_summed_images_are_not(student, rng):
    "Every filter sums over all input channels; every image of the batch keeps its own outputs."
    for sizes in ((1, 3, 4, 4, 1, 2, 2), (3, 1, 4, 4, 1, 2, 2), (2, 3, 5, 4, 3, 2, 2), (2, 2, 6, 5, 4, 3, 2)):
        check_direct(student, rng, sizes)
    for sizes, _, _ in problems(rng):
        check_direct(student, rng, sizes)
    check_direct(student, rng, (2, 3, 6, 6, 4, 3, 3), torch.float32)


@exercise.check(points=1, needs="channels_are_summed_images_are_not")
def the_smallest_and_the_largest_window(student, rng):
    "A 1x1 window, one as large as the image, one as wide or as high: all are convolutions."
    for sizes in ((2, 3, 4, 5, 2, 1, 1), (2, 3, 4, 5, 2, 4, 5), (1, 2, 4, 5, 2, 1, 5), (1, 2, 4, 5, 2, 4, 1)):
        check_direct(student, rng, sizes)


@exercise.check(points=2, needs="channels_are_summed_images_are_not")
def strides_and_padding(student, rng):
    "Zeros go around the image first; then the window moves in steps of stride."
    for options in STRIDES:
        check_direct(student, rng, (2, 2, 8, 7, 3, 3, 2), **options)
    for sizes, stride, padding in problems(rng):
        options = {"stride": stride, "padding": padding}
        check_direct(student, rng, sizes, **options)


@exercise.check(points=1, needs="the_lectures_formula")
def leaves_images_and_filters_alone(student, rng):
    "x and w are the same after the call."
    for sizes, _, _ in problems(rng):  # as drawn where outputs are compared
        x, w = images(rng, *sizes)
        checks.leaves_alone(student.conv_direct, x=x, w=w)
    x, w = images(rng, 1, 1, 4, 4, 1, 2, 2)  # of channels and images other checks speak
    check_output(checks.leaves_alone(student.conv_direct, x=x, w=w), x, w, name="conv_direct(x, w)")
