"""The two values of a number format on either side of x. Oracle: a search through all values of the format."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks import number_formats as formats
from autograder.checks.number_formats import beside, exact, values
from autograder.exercises.stochastic_rounding.inputs import FIXED, SATURATES, a_fixed_format, between, beyond, shapes_of
from autograder.exercises.stochastic_rounding.libraries import BESIDE
from autograder.exercises.stochastic_rounding.spacing import BITS, by_spacing, spacing_of
from hpcdl.numerics.rounding import BF16, FP8_E4M3, FP8_E5M2, FP16, Fixed

exercise = Exercise("neighbours", points=20, minutes=15, **BESIDE)

FLOATING = (BF16, FP16, FP8_E4M3, FP8_E5M2)


def two_neighbours(student, x, fmt, *, why: str, mistakes=None) -> torch.Tensor:
    """Ask for the neighbours of x, and compare with the two values found by searching all of the format's.

    Returns the tensor that was given.
    """
    given = x.clone()
    got = pair(student, given, fmt)
    for part, name in enumerate(("lower", "upper")):
        named = {sentence: value[part] for sentence, value in (mistakes or {}).items()}
        right = beside(x, fmt)
        if part == 0:
            named["The two are swapped: lower comes first."] = right[1]
        exact(got[part], right[part], x, name=f"{name}, {fmt},", why=why, mistakes=named)
    return given


def pair(student, x, fmt):
    """What neighbours returns for x, two values."""
    got = student.neighbours(x, fmt)
    checks.that(
        type(got) in (tuple, list) and len(got) == 2,
        "neighbours returns two tensors: end with `return lower, upper`.",
        got=got,
        expected="(lower, upper)",
    )
    return got


def fixed_mistakes(x, fmt) -> dict:
    eps, (lower, upper) = 2.0**-fmt.fl, beside(x, fmt)
    cut = torch.where(x < 0, upper, lower)
    toward_zero = "Cutting off the digits goes toward 0, which is up for negative x. ⌊x⌋ goes down: torch.floor."
    return {
        toward_zero: (cut, cut + eps),
        "The spacing is 2^-FL, from the fractional bits; you use the integer bits.": by_spacing(x, 2.0**-fmt.il),
        "Multiply by ε again: floor(x / ε) counts multiples of ε, and ⌊x⌋ is floor(x / ε) · ε.": (
            lower / eps,
            upper / eps,
        ),
        "These are whole numbers: divide by ε, then floor, then multiply by ε.": by_spacing(x, 1.0),
    }


@exercise.check(points=5)
def fixed_point(student, rng):
    "In fixed point the neighbours are the multiples of ε = 2^−FL on either side of x."
    first = torch.tensor([0.30, -0.30])
    drawn = [(fmt, between(rng, fmt, 60)) for fmt in (*FIXED, a_fixed_format(rng))]
    fmt, last = drawn[-1]
    for fmt, x in ((Fixed(4, 2), first), *drawn, *((fmt, x) for x in shapes_of(last))):
        why = f"ε = 2^-{fmt.fl} = {2.0**-fmt.fl:g} in {fmt}; ⌊x⌋ is the largest multiple of ε that is not above x."
        two_neighbours(student, x, fmt, why=why, mistakes=fixed_mistakes(x, fmt))


@exercise.check(points=3, needs="fixed_point")
def a_value_of_the_format(student, rng):
    "A number that the format has is its own neighbour on both sides; x is unchanged."
    for fmt in (Fixed(4, 4), *FLOATING):
        x = values(fmt).float()
        why = f"{fmt} can hold every one of these numbers, so there is nothing to round."
        apart = "If x is in the format, both neighbours are x: take floor and ceil, not floor and floor + ε."
        above = torch.cat([values(fmt)[1:], values(fmt)[-1:]])
        given = two_neighbours(student, x, fmt, why=why, mistakes={apart: (x.double(), above)})
        checks.unchanged(given, x, name="x")
    for fmt in (Fixed(4, 4), BF16):
        x = between(rng, fmt, 9)
        given = two_neighbours(student, x, fmt, why="These numbers lie between two of the format.")
        checks.unchanged(given, x, name="x")


@exercise.check(points=5, needs="fixed_point")
def floating_point(student, rng):
    "In floating point the spacing doubles with each power of two: ε(x) = 2^(e − mantissa bits)."
    for fmt in (BF16, FP16):
        mantissa, emin = BITS[fmt]
        k = torch.randint(max(emin, -30), 15, (40,), generator=rng)
        sign = 2 * torch.randint(0, 2, (40,), generator=rng) - 1
        x = (sign * (1 + (torch.randint(1 << mantissa, (40,), generator=rng) + 0.5) / (1 << mantissa)) * 2.0**k).float()
        machine, eps = 2.0**-mantissa, spacing_of(x, fmt)
        mistakes = {
            "Your spacing is the same everywhere: the spacing from 1 to 2. It must grow with |x|.": by_spacing(
                x, machine
            ),
            "Your spacing is half of the right one: with e = ⌊log₂|x|⌋, ε = 2^(e − mantissa bits).": by_spacing(
                x, eps / 2
            ),
            "Your spacing is twice the right one. torch.frexp gives a fraction in [1/2, 1), its exponent is e + 1.": (
                by_spacing(x, 2 * eps)
            ),
        }
        why = f"{fmt} has 2^{mantissa} values from 2^e to 2^(e+1), so they are ε = 2^(e − {mantissa}) apart."
        two_neighbours(student, x, fmt, why=why, mistakes=mistakes)


@exercise.check(points=3, needs="floating_point")
def just_below_a_power_of_two(student, rng):
    "The last float32 before a power of two still has the smaller spacing."
    for fmt in (BF16, FP16):
        powers = torch.tensor([2.0**k for k in (-12, -3, 1, 7, 14)])
        x = torch.cat([torch.nextafter(powers, torch.zeros(1)), torch.nextafter(-powers, torch.zeros(1))])
        doubled = "log₂ in float32 is rounded, too: just below 2^k it gives k. torch.frexp gives the exponent exactly."
        why = f"Between it and the power of two there is no other value of {fmt}."
        logarithm = 2.0 ** (torch.log2(x.abs()).floor().double() - BITS[fmt][0])
        two_neighbours(student, x, fmt, why=why, mistakes={doubled: by_spacing(x, logarithm)})


@exercise.check(points=2, needs="floating_point")
def every_code(student, rng):
    "All 65,536 codes of bfloat16 and all 256 of both FP8: for each midpoint of two neighbours these are the answer."
    for fmt in (FP8_E4M3, FP8_E5M2, BF16):
        x = formats.midpoints(fmt).float()
        finer = (
            "Below its smallest normal number a format's spacing no longer shrinks: its exponent is at least "
            f"{BITS[fmt][1]} in {fmt}. These numbers are called subnormal."
        )
        why = f"x takes the midpoints of all neighbouring values of {fmt}."
        two_neighbours(student, x, fmt, why=why, mistakes={finer: by_spacing(x, spacing_of(x, fmt, least=False))})


@exercise.check(points=2, needs="fixed_point")
def the_ends(student, rng):
    "Beyond the ends a format without infinity saturates; infinities and NaN stay in the others."
    for fmt in (Fixed(4, 4), a_fixed_format(rng), FP8_E4M3):
        x, right = beyond(fmt)
        for part, name in zip(pair(student, x.clone(), fmt), ("lower", "upper"), strict=True):
            exact(part, right, x, name=f"{name}, {fmt},", why=SATURATES)
    x = torch.tensor([math.inf, -math.inf, math.nan])
    for part, name in zip(pair(student, x.clone(), FP16), ("lower", "upper"), strict=True):
        exact(part, x.double(), x, name=f"{name}, FP16,", why="FP16 has infinities and NaN.")
