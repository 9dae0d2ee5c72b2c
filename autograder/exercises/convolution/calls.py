"""A call that several exercises make alike: a convolution of random images."""

from autograder.exercises.convolution.drawing import Sizes, images
from autograder.exercises.convolution.outputs import check_output
from autograder.exercises.drawing import F64

STRIDES = tuple({"stride": stride, "padding": padding} for stride, padding in ((2, 0), (3, 0), (1, 1), (2, 2), (3, 1)))


def check_convolution(function, rng, sizes: Sizes, name: str, dtype=F64, **options):
    """The student's convolution of random images of these sizes, (n, c, h, w, k, r, s), against torch's."""
    x, w = images(rng, *sizes, dtype=dtype)
    got = function(x.clone(), w.clone(), **options)
    check_output(got, x, w, options.get("stride", 1), options.get("padding", 0), name=name)


def called(name: str, options: dict) -> str:
    """`conv_fft(x, w, padding=2)`."""
    return f"{name}(x, w{''.join(f', {key}={value}' for key, value in options.items())})"
