"""What each algorithm multiplies and moves. Oracle: runs of the algorithms whose products and arrays are counted."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.convolution.counts import Counted, counted
from autograder.exercises.drawing import whole_number
from hpcdl.conv.problem import Problem
from hpcdl.cost.convolution import cost

exercise = Exercise("conv_cost", points=10, minutes=10, functions=("conv_cost", "Problem"))

# N, C, H, W, K, R, S and options
SQUARE: tuple = (((2, 3, 8, 8, 4, 3, 3), {"padding": 1}), ((1, 2, 9, 7, 3, 3, 3), {}))
OTHERS: tuple = (
    ((2, 2, 11, 8, 3, 5, 3), {"stride": 2, "padding": 1}),
    ((1, 1, 12, 20, 2, 7, 7), {}),
    ((1, 2, 7, 6, 2, 3, 3), {"padding": 1}),  # 9 x 8 with its border: just above a power of two, and one
)


def some_layer(rng, window: tuple[int, int] | None = None) -> tuple[tuple[int, ...], dict[str, int]]:
    """A layer of drawn sizes; with a `window` of that size, it moves by 1."""
    r, s = window or (whole_number(rng, 1, 4), whole_number(rng, 1, 4))
    n, c, k = (whole_number(rng, 1, 4) for _ in range(3))
    options = {"padding": whole_number(rng, 0, 2), **({} if window else {"stride": whole_number(rng, 1, 3)})}
    return (n, c, whole_number(rng, r + 2, 12), whole_number(rng, s + 2, 12), k, r, s), options


def check_cost(student, algorithm: str, layers) -> None:
    """conv_cost is what counting a run gives."""
    for (n, c, h, wd, k, r, s), options in layers:
        problem = student.Problem(n, c, h, wd, k, r, s, **options)
        layer = [str(size) for size in (n, c, h, wd, k, r, s)] + [f"{key}={value}" for key, value in options.items()]
        name = f"conv_cost({algorithm!r}, Problem({', '.join(layer)}))"
        got = both(student.conv_cost(algorithm, problem), name)
        run = counted(algorithm, torch.ones(n, c, h, wd), torch.ones(k, c, r, s), **options)
        for value, part in zip(got, ("multiplications", "bytes"), strict=True):
            check_count(value, run, part, name)


def both(got, name: str):
    """What conv_cost returned, two values."""
    checks.that(
        type(got) in (tuple, list) and len(got) == 2,
        f"{name} is {show.an(show.type_name(got))}, expected (multiplications, bytes).",
        got=got,
    )
    return got


def check_count(value, run: Counted, part: str, name: str) -> None:
    """One of the two numbers is that of the counted run; a known mistake is named."""
    wanted, is_number = getattr(run, part), checks.is_number(value)
    mistake = run.mistakes(part).get(value, "") if is_number else ""
    checks.that(
        is_number and value == wanted,
        f"{mistake} The {part} of {name} are {show.show(value)}, counted {wanted:,}.".lstrip(),
        got=value,
        expected=wanted,
        why=run.words(part),
    )


@exercise.check(points=2)
def direct_and_im2col(student, rng):
    "A multiplication for each weight at each output; im2col's matrix is written once and read once."
    for algorithm in ("direct", "im2col"):
        check_cost(student, algorithm, (*SQUARE, *OTHERS, some_layer(rng)))


@exercise.check(points=1)
def toeplitzs_matrix(student, rng):
    "Toeplitz: the non-zeros of T, each stored with its row and its column."
    check_cost(student, "toeplitz", (*SQUARE, *OTHERS, some_layer(rng)))


@exercise.check(points=3)
def winograds_tiles(student, rng):
    "Winograd: (m + 2)² multiplications for each tile, filter and channel; tiles at the border count as whole tiles."
    for algorithm in ("winograd_2x2", "winograd_4x4"):
        check_cost(student, algorithm, (*SQUARE, some_layer(rng, window=(3, 3))))


@exercise.check(points=2)
def fouriers_spectra(student, rng):
    "Fourier: four real multiplications for each complex product, on half a spectrum."
    check_cost(student, "fft", (*SQUARE, *OTHERS, some_layer(rng)))


ORDERS: tuple[tuple[str, tuple[int, ...], dict[str, int], tuple[str, ...]], ...] = (
    ("VGG conv3_2", (1, 256, 56, 56, 256, 3, 3), {"padding": 1}, ("winograd_4x4", "fft", "winograd_2x2", "direct")),
    ("a 1x1 layer", (1, 64, 32, 32, 64, 1, 1), {}, ("direct", "fft")),
    ("a 13x13 layer", (1, 64, 64, 64, 64, 13, 13), {}, ("fft", "direct")),
)


@exercise.check(points=2, needs=("direct_and_im2col", "fouriers_spectra"))
def predicts_the_order(student, rng):
    "On real layers it predicts which algorithm multiplies least."
    for layer, sizes, options, order in ORDERS:
        problem = student.Problem(*sizes, **options)
        got = {}
        for algorithm in order:
            name = f"conv_cost({algorithm!r}, {layer})"
            got[algorithm], nbytes = both(student.conv_cost(algorithm, problem), name)
            shown = show.show(got[algorithm], 80)
            checks.that(checks.is_number(got[algorithm]), f"The multiplications of {name} are {shown}, not a number.")
            if not algorithm.startswith("winograd"):  # of its tiles another check speaks
                right = cost(algorithm, Problem(*sizes, **options))
                for part, value, wanted in (
                    ("multiplications", got[algorithm], right.products),
                    ("bytes", nbytes, right.nbytes),
                ):
                    checks.that(
                        checks.is_number(value) and value == wanted,
                        f"The {part} of {name} are {show.show(value)}, expected {wanted:,}.",
                    )
        checks.equal(
            sorted(order, key=got.__getitem__),
            list(order),
            name=f"{layer}, from the fewest multiplications to the most",
        )
