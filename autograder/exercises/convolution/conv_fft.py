"""The convolution by Fourier transforms. Oracle: torch's, in float64."""

import torch
from torch.nn import functional

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.convolution.calls import called
from autograder.exercises.convolution.drawing import Sizes, images, problems
from autograder.exercises.convolution.libraries import OWN
from autograder.exercises.convolution.oracles import conv, output
from autograder.exercises.convolution.outputs import check_output
from autograder.exercises.drawing import F64, whole_number

exercise = Exercise("conv_fft", points=10, minutes=12, **OWN)


def check_fft(student, rng, sizes: Sizes, dtype=F64, **options):
    x, w = images(rng, *sizes, dtype=dtype)
    got = student.conv_fft(x.clone(), w.clone(), **options)
    if type(got) is torch.Tensor and got.is_complex():
        checks.fail(
            f"conv_fft returns {show.dtype(got)} numbers: images are real. torch.fft.irfft2 gives a real result.",
            got=got,
        )
    padding = options.get("padding", 0)
    check_output(got, x, w, padding=padding, name=called("conv_fft", options), extra=spectral_mistakes(x, w, padding))
    if dtype == F64:
        transforms(student, rng, sizes, options)


HUGE = 2.0**40


def transforms(student, rng, sizes: Sizes, options: dict) -> None:
    """Check that pixels are mixed, as a transform mixes them: beside a huge pixel small ones are rounded away.

    Windows without it are exact, since the others have 30 bits behind the point, and weights 10.
    """
    n, c, h, wd, k, r, s = sizes
    x, w = fractions(rng, 30, n, c, h, wd), fractions(rng, 10, k, c, r, s)
    padding = options.get("padding", 0)
    place = whole_number(rng, 0, c - 1), at_an_edge(r, padding), at_an_edge(s, padding)
    x[:, *place] = HUGE
    got, right = student.conv_fft(x.clone(), w.clone(), **options), conv(x, w, 1, padding)
    name = f"{called('conv_fft', options)} with a pixel of 2^40 in each image"
    far = conv((x == HUGE).to(F64), torch.ones_like(w), 1, padding) == 0
    checks.close(
        got,
        right,
        name=name,
        atol=1e-13 * HUGE * float(w.abs().sum((1, 2, 3)).max()),
        why="A transform may round so much away.",
    )
    mixing = padding < min(r, s) and min(right.shape[2:]) > 1
    checks.that(
        not mixing or not torch.equal(got[far], right[far]),
        f"{name}: it is exact in each window without such a pixel. A Fourier transform mixes pixels with their "
        "neighbours, and rounds the small ones away: multiply spectra, not windows.",
        why=f"x {tuple(x.shape)}, w {tuple(w.shape)}; the other pixels are between 1 and 4.",
    )


def fractions(rng, bits: int, *shape: int) -> torch.Tensor:
    """Numbers from 1 to 4 with so many bits behind the point."""
    return torch.randint(2**bits, 4 * 2**bits, shape, generator=rng).to(F64) / 2**bits


def at_an_edge(window: int, padding: int) -> int:
    """The place of a pixel that either the first or the second window sees, not both, if padding < window: transforms
    of parts of an image, however small, mix the two."""
    return max(window - padding, 0) if padding else 0


@exercise.check(points=3)
def a_product_of_spectra(student, rng):
    "One image, one filter: transform both, multiply by the conjugate, transform back, cut."
    for sizes in ((1, 1, 4, 4, 1, 2, 2), (1, 1, 8, 6, 1, 3, 3), (1, 1, 6, 8, 1, 2, 5)):
        check_fft(student, rng, sizes)


@exercise.check(points=2, needs="a_product_of_spectra")
def odd_sizes(student, rng):
    "Images of odd height and width come back with all their pixels."
    for sizes in ((1, 1, 5, 5, 1, 3, 3), (1, 1, 6, 7, 1, 2, 2), (1, 1, 7, 6, 1, 4, 3)):
        check_fft(student, rng, sizes)


@exercise.check(points=2, needs="a_product_of_spectra")
def many_channels_and_images(student, rng):
    "The products of the spectra are summed over the input channels, for each image and each filter."
    for sizes in ((1, 3, 4, 4, 1, 2, 2), (3, 1, 4, 4, 1, 2, 2), (2, 3, 6, 6, 3, 3, 3), (3, 2, 6, 4, 4, 3, 2)):
        check_fft(student, rng, sizes)


@exercise.check(points=2, needs="a_product_of_spectra")
def zeros_not_the_other_side(student, rng):
    "With padding the window meets zeros beyond the border, not the opposite side of the image."
    for padding, sizes in ((1, (1, 1, 6, 6, 1, 3, 3)), (2, (2, 2, 5, 6, 2, 3, 2)), (4, (1, 2, 4, 4, 1, 5, 5))):
        check_fft(student, rng, sizes, padding=padding)
    for (n, c, h, w, k, r, s), _, padding in problems(rng):
        check_fft(student, rng, (n, c, h, w + w % 2, k, r, s), padding=padding)  # odd ones have a check of their own


@exercise.check(points=1, needs="a_product_of_spectra")
def the_kernel_as_large_as_the_image(student, rng):
    "A kernel as large as the image, a kernel of a single pixel, float32: the Fourier transform handles them all."
    check_fft(student, rng, (2, 2, 6, 8, 3, 6, 8))
    check_fft(student, rng, (2, 2, 6, 4, 3, 1, 1))
    check_fft(student, rng, (2, 3, 16, 12, 4, 9, 7), torch.float32)
    x, w = images(rng, 1, 2, 4, 4, 2, 2, 2)
    check_output(checks.leaves_alone(student.conv_fft, x=x, w=w), x, w, name="conv_fft(x, w)")


def spectral_mistakes(x, w, padding: int) -> dict:
    """Values that mistakes with spectra give."""
    x = functional.pad(x, (padding,) * 4)
    (h, wd), (p, q) = x.shape[2:], output(x, w, 1, 0)
    spectrum, kernel = torch.fft.rfft2(x.double())[:, None], torch.fft.rfft2(w.double(), s=(h, wd))

    def back(product, size=(h, wd)):
        return torch.fft.irfft2(product.sum(2), s=size).to(x.dtype)

    right = spectrum * kernel.conj()
    return {
        "The spectrum of w is not conjugated: F(x) · F(w) flips the kernel, F(x) · conj(F(w)) does not.": lambda: back(
            spectrum * kernel
        )[..., :p, :q],
        "The wrong spectrum is conjugated: conjugate w's, not x's.": lambda: back(spectrum.conj() * kernel)[
            ..., :p, :q
        ],
        "The result is not cut: beyond P rows and Q columns the window wraps around to the other side.": lambda: back(
            right
        ),
        "The result is cut at the wrong end: without a flip the outputs start at [0, 0].": lambda: back(right)[
            ..., h - p :, wd - q :
        ],
        "irfft2 assumed an even width: W // 2 + 1 numbers fit W and W − 1. Pass it, irfft2(..., s=(H, W)).": lambda: (
            back(right, (h, 2 * (wd // 2)))[..., :p, :q]
        ),
    }
