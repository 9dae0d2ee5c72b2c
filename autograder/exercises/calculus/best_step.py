"""The step that serves the central difference best. Oracle: a sweep over steps, its errors measured by autograd."""

import math
from collections.abc import Callable

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.calculus.drawing import number, uniform
from autograder.exercises.calculus.functions import autograd
from autograder.exercises.drawing import whole_number

ASKED_IN_FLOAT32 = (
    "You compute f in float32, where rounding hides its third derivative: find the step in float64. The difference "
    "will be computed in dtype; here only its eps matters."
)

exercise = Exercise("best_step", points=15, minutes=12, meanings={"division by zero": ASKED_IN_FLOAT32})


class wide:  # noqa: N801 (reads as a function)
    """`f` for tensors, which also takes a plain number and then computes in float64; `asked` are tensors' dtypes.

    Its name does not tell which function it is: a step that fits only the functions of these checks fits none.
    """

    __name__ = "f"

    def __init__(self, f):
        self.f, self.asked = f, set[torch.dtype]()

    def __call__(self, x):
        if isinstance(x, torch.Tensor):
            self.asked.add(x.dtype)
        return self.f(x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.float64))


def scaled(of: Callable, rng, slowest: float = 0.8, fastest: float = 1.0):
    """Return a · of(b x) with drawn a and b, b between these two, under the name of `of`."""
    a, b = number(0.7, 1.3, rng), uniform(slowest, fastest, (), rng).item()

    def f(x):
        return a * of(b * x)

    f.__name__ = of.__name__
    return f


def wave(x: float, rng, slowest: float, fastest: float):
    """Return a · sin(b (t - x) / |x| + c) with drawn numbers, for which at x neither sine nor cosine is small."""
    a, (b, c) = number(0.7, 1.3, rng), (uniform(*ends, (), rng).item() for ends in ((slowest, fastest), (1.9, 2.7)))
    size = abs(x) or 1.0

    def of(t):
        return a * torch.sin(b * (t - x) / size + c)

    of.__name__ = "wave"
    return of


def ripple(x: float, rng):
    """Return a slanted line with a small, quick wave: at x only its third derivative is large."""
    a, small, b, slope = (
        uniform(*ends, (), rng).item() for ends in ((0.8, 1.2), (0.02, 0.03), (35.0, 45.0), (0.02, 0.05))
    )
    size, side = abs(x) or 1.0, math.copysign(1.0, number(-1, 1, rng))

    def of(t):
        u = (t - x) / size
        return a + (side * slope + small * b) * u - small * torch.sin(b * u + 2e-4)  # its bend at x is not quite 0

    of.__name__ = "wave"
    return of


QUICK, SLOW = (35.0, 45.0), (0.13, 0.17)  # of a wave: |x| is six of its periods, or a fortieth of one
ORDINARY = (torch.sin, torch.exp, torch.cosh)


SWEEP = torch.logspace(-14, 3.5, 141, dtype=torch.float64)  # eight steps to a decade
NEAR = torch.logspace(-0.15, 0.15, 41, dtype=torch.float64)


def typical_error(f, x: float, h: torch.Tensor, dtype) -> torch.Tensor:
    """Root mean square error of the central difference over steps around each h, so that no lucky h counts."""
    h = (h[:, None] * NEAR).to(dtype)
    point = torch.tensor(x, dtype=dtype)
    errors = ((f(point + h) - f(point - h)) / (2 * h)).double() - autograd(f, point.double())
    return errors.square().mean(1).sqrt().nan_to_num(math.inf, math.inf)


def step_is_good(student, f, x: float, dtype, advice: str = "") -> None:
    """The student's step gives at most ten times the error of the best step of a sweep."""
    call = f"best_step({f.__name__}, {x}, torch.{show.dtype(dtype)})"
    f_of_theirs = wide(f)
    h = student.best_step(f_of_theirs, x, dtype)
    if type(h) is torch.Tensor and h.dim() == 0:
        h = h.item()
    checks.that(checks.is_number(h), f"{call} is {show.an(show.type_name(h))}, expected a number.", got=h)
    reason = " A step proportional to x vanishes at x = 0." if x == 0 and h == 0 else ""
    checks.that(0 < h < math.inf, f"{call} is {show.number(h)}, expected a positive, finite step.{reason}", got=h)
    error = typical_error(f, x, torch.tensor([h], dtype=torch.float64), dtype).item()
    sweep = typical_error(f, x, SWEEP, dtype)
    least, best = sweep.min().item(), SWEEP[sweep.argmin()].item()
    side = "small: rounding hides the difference" if h < best else "large: the curve bends within it"
    advice = " " + advice if advice else step_mistake(h, dtype)
    if torch.float32 in f_of_theirs.asked:
        advice = f" {ASKED_IN_FLOAT32}"
    checks.that(
        error <= 10 * least,
        f"{call}: your h is too {side}.{advice}",
        got=f"h = {h:.2g}, typical error {error:.2g}",
        expected=f"at most 10 times {least:.2g}, which h near {best:.1g} gives",
    )


def step_mistake(h: float, dtype) -> str:
    """A sentence where the wrong step for an ordinary function is that of another rule or another precision."""
    eps = torch.finfo(dtype).eps
    other = torch.float64 if dtype == torch.float32 else torch.float32
    steps = {
        "The square root of eps suits the forward difference; the central one needs the cube root.": eps ** (1 / 2),
        f"It would suit {show.dtype(other)}: take eps from torch.finfo(dtype).": torch.finfo(other).eps ** (1 / 3),
    }
    return next((" " + sentence for sentence, step in steps.items() if step / 3 < h < step * 3), "")


@exercise.check(points=4)
def ordinary_functions_float64(student, rng):
    "float64: sin, exp and cosh near 1."
    for f in ORDINARY * 2:
        step_is_good(student, scaled(f, rng), number(0.6, 1.4, rng), torch.float64)


@exercise.check(points=4)
def ordinary_functions_float32(student, rng):
    "float32 needs another step than float64."
    for f in ORDINARY * 2:
        step_is_good(student, scaled(f, rng), number(0.6, 1.4, rng), torch.float32)


@exercise.check(points=4)
def any_size_of_x(student, rng):
    "The step fits x = 4,000, x = 0.001, x = 0 and negative x, and there, too, how quickly f bends."
    advice = "This x is far from 1: let the step grow and shrink with |x|."
    large, negative = number(3000, 5000, rng), number(-1.5, -1, rng)
    for dtype in (torch.float64, torch.float32):
        step_is_good(student, scaled(torch.sqrt, rng), large, dtype, advice)
        step_is_good(student, scaled(torch.log, rng), 0.001, dtype, advice)
        step_is_good(student, scaled(torch.exp, rng), 0.0, dtype)
        step_is_good(student, scaled(torch.cosh, rng), negative, dtype)
    sides = [2 * whole_number(rng, 0, 1) - 1 for _ in range(2)]
    between = [sides[0] * uniform(0.02, 0.5, (), rng).item(), sides[1] * uniform(3, 900, (), rng).item()]
    for x in (large, 0.001, 0.0, negative, *between):
        fits_how_f_bends(student, x, (torch.float64, torch.float32)[whole_number(rng, 0, 1)], rng)


def fits_how_f_bends(student, x: float, dtype, rng) -> None:
    """Check the step for functions that bend quickly or slowly, compared with |x|."""
    quick, slow = wave(x, rng, *QUICK), wave(x, rng, *SLOW)
    for how, f in (("quickly", quick), ("quickly", ripple(x, rng)), ("slowly", slow)):
        step_is_good(student, f, x, dtype, f"This f bends {how}: the step depends on its third derivative.")


@exercise.check(points=3)
def quick_functions(student, rng):
    "The step fits functions that bend quickly, such as sin 40x and e^30x, and one that bends slowly, sin x/7."
    for dtype in (torch.float64, torch.float32):
        x = number(0.99, 1.01, rng)
        fits_how_f_bends(student, x, dtype, rng)
        advice = "This f bends quickly: the step depends on its third derivative."
        step_is_good(student, scaled(torch.exp, rng, 25, 35), x, dtype, advice)
