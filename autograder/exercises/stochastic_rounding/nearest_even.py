"""Rounding to the nearest value, a tie to the even one. Oracle: the format's values, and the hardware's conversion."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks import number_formats as formats
from autograder.checks.number_formats import beside, exact, values
from autograder.exercises.drawing import F32, whole_number
from autograder.exercises.stochastic_rounding.inputs import FIXED, SATURATES, a_fixed_format, between, beyond, shapes_of
from autograder.exercises.stochastic_rounding.libraries import OWN
from autograder.exercises.stochastic_rounding.spacing import BITS, spacing_of
from hpcdl.numerics.rounding import BF16, FP8_E4M3, FP8_E5M2, FP16, Fixed

exercise = Exercise("round_nearest_even", points=10, minutes=10, uses=("neighbours",), **OWN)


def ask_nearest(student, x, fmt, *, why: str = "", mistakes=None) -> None:
    got = student.round_nearest_even(x.clone(), fmt)
    name = f"round_nearest_even(x, {fmt})"
    exact(got, formats.nearest(x, fmt), x, name=name, why=why, mistakes=mistakes)


def off_the_middle(rng, fmt, n: int) -> torch.Tensor:
    x = between(rng, fmt, n)
    return x[formats.odds(x, fmt) != 0.5]


@exercise.check(points=3)
def the_nearer_one(student, rng):
    "The nearer of the two neighbours, in fixed and in floating point."
    formats_of_x = [(fmt, off_the_middle(rng, fmt, 60)) for fmt in (*FIXED, a_fixed_format(rng), BF16, FP8_E4M3)]
    shaped = [(BF16, x) for x in shapes_of(off_the_middle(rng, BF16, 60)[:40])]
    for fmt, x in formats_of_x + shaped:
        lower, upper = beside(x, fmt)
        mistakes = {
            "This is always the lower neighbour: choose the nearer of the two.": lower,
            "This is always the upper neighbour: choose the nearer of the two.": upper,
            "This cuts off (rounds toward 0): choose the nearer of the two.": torch.where(x < 0, upper, lower),
            "This is the farther neighbour: compare x - lower with upper - x.": lower + upper - formats.nearest(x, fmt),
        }
        ask_nearest(student, x, fmt, mistakes=mistakes)


@exercise.check(points=3, needs="the_nearer_one")
def ties_to_even(student, rng):
    "Exactly in the middle, the neighbour whose last bit is 0."
    for fmt in (*FIXED, FP8_E4M3, FP8_E5M2, BF16):
        x = formats.midpoints(fmt).float()
        lower, upper = beside(x, fmt)
        away = torch.where(x < 0, lower, upper)
        right = formats.nearest(x, fmt)
        mistakes = {
            "You round the middle up (half up), so sums grow on average: take the even neighbour.": upper,
            "You round the middle down: take the even neighbour.": lower,
            "You round the middle away from 0, as at school: take the even neighbour.": away,
            "You round the middle toward 0: take the even neighbour.": lower + upper - away,
            "You take the odd neighbour: the last bit must be 0.": lower + upper - right,
        }
        if fmt in BITS:
            even = (lower / spacing_of(lower, fmt)) % 2 == 0
            fine = (
                "Below a power of two the upper neighbour has another exponent: use lower / ε(x), with x's own ε, to "
                "find the even one."
            )
            mistakes[fine] = torch.where(even, lower, upper)
        why = "x takes the midpoints of all neighbouring values. Even means: the last bit of the code is 0."
        ask_nearest(student, x, fmt, why=why, mistakes=mistakes)


OVERFLOWS = "Beyond its ends a format with infinity overflows: round to a multiple of ε first, then `fmt.bounded`."


@exercise.check(points=2, needs="ties_to_even")
def any_bits(student, rng):
    "The same bits as the conversion in hardware, for float32 numbers of every size."
    for fmt in (BF16, FP16):
        codes = torch.randint(-(2**31), 2**31, (2000,), generator=rng).to(torch.int32)
        x = codes.view(F32)
        x = x[x.isfinite()]
        before, last = values(fmt)[-2:]
        over = (last + (last - before) * torch.tensor([0.25, 0.5, 0.75])).float()  # the tie is infinite, too
        x = torch.cat([x, x.frexp().mantissa, x.frexp().mantissa * 2.0 ** BITS[fmt][1], over, -over])
        got, right = student.round_nearest_even(x.clone(), fmt), x.to(formats.CODES[fmt][0]).double()
        exact(got, right, x, name=f"round_nearest_even(x, {fmt})", why=OVERFLOWS)


@exercise.check(points=2, needs="the_nearer_one")
def ends_and_zeros(student, rng):
    "Fixed point saturates, NaN and infinities stay, a floating-point zero keeps its sign, and x is unchanged."
    x = between(rng, FP16, whole_number(rng, 1, 40))
    got = checks.leaves_alone(lambda x: student.round_nearest_even(x, FP16), x=x)
    exact(got, formats.nearest(x, FP16), x, name="round_nearest_even(x, FP16)")
    for fmt in (Fixed(4, 4), a_fixed_format(rng), FP8_E4M3):
        x, right = beyond(fmt)
        exact(student.round_nearest_even(x.clone(), fmt), right, x, name=f"round_nearest_even(x, {fmt})", why=SATURATES)
    x = torch.tensor([math.inf, -math.inf, math.nan])
    exact(student.round_nearest_even(x.clone(), FP16), x.double(), x, name="round_nearest_even(x, FP16)")
    got = student.round_nearest_even(torch.tensor([0.0, -0.0, 1e-30, -1e-30]), FP16)
    checks.tensor(got, name="round_nearest_even(x, FP16)", shape=(4,), dtype=F32)
    checks.equal(
        [math.copysign(1.0, zero) for zero in got.tolist()],
        [1.0, -1.0, 1.0, -1.0],
        name="the signs of round_nearest_even(tensor([0., -0., 1e-30, -1e-30]), FP16)",
        why="IEEE 754 keeps the sign of a number that underflows: -0 shows that it was negative.",
    )
