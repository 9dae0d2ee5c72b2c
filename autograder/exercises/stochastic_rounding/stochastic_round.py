"""Rounding up or down at random, right on average. Oracle: the exact odds, over a grid of all random numbers."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks import number_formats as formats
from autograder.checks.number_formats import beside, exact, values
from autograder.exercises.drawing import F32
from autograder.exercises.stochastic_rounding.inputs import (
    FIXED,
    PARTS,
    SATURATES,
    a_fixed_format,
    between,
    beyond,
    shapes_of,
)
from autograder.exercises.stochastic_rounding.libraries import OWN
from autograder.exercises.stochastic_rounding.spacing import by_spacing
from hpcdl.numerics.rounding import BF16, FP8_E4M3, FP8_E5M2, FP16, Fixed

exercise = Exercise("stochastic_round", points=15, minutes=10, uses=("neighbours",), **OWN)


def ask_stochastic(student, x, fmt, u, *, why: str = "", mistakes=None) -> None:
    got = student.stochastic_round(x.clone(), fmt, u.clone())
    right, (lower, upper) = formats.stochastic(x, fmt, u), beside(x, fmt)
    inside, p = (x != lower) & (x != upper), formats.odds(x, fmt)
    named = {
        "You use one random number for all: each element has its own u.": formats.stochastic(x, fmt, u.flatten()[:1]),
        "ε is missing: p is a share of the way, (x − ⌊x⌋)/ε.": torch.where(u < x - lower, upper, lower),
        "This uses u twice: round up where u < p, and nothing else is random.": torch.where(2 * u < p, upper, lower),
        "The odds are reversed: x near the upper neighbour should seldom go down. Round up where u < p.": torch.where(
            u < 1 - p, upper, lower
        ),
        "This goes up where u ≥ 1 − p. Its odds are right, too, but here round up where u < p, so that there is one "
        "right answer.": (torch.where((u >= 1 - p) & inside, upper, lower)),
        "This does not use u: it rounds to nearest.": formats.nearest(x, fmt),
        "This always rounds down: round up where u < p.": lower,
    }
    if type(fmt) is Fixed:
        twice = "This adds u twice: floor(x / ε + u + u). Round up where u < p, by one ε."
        named[twice] = by_spacing(x + 2 * u * fmt.eps, fmt.eps)[0].clamp(fmt.min, fmt.max)
    try:
        exact(got, right, x, name=f"stochastic_round(x, {fmt}, u)", why=why, mistakes=(mistakes or {}) | named)
    except checks.CheckFailure as failure:
        # More than once: five coins fall the same way twice in one of 32 pairs.
        if not all(checks.same(got, student.stochastic_round(x.clone(), fmt, u.clone())) for _ in range(4)):
            failure.mistake = (
                "A second call with the same u rounds differently: u holds the random numbers, so draw none."
            )
        raise


def grid_of_odds(x, fmt, parts: int = PARTS):
    """Every x with every u of a grid, all u equally often: for x a fraction k/parts up, k of the parts go up."""
    u = (torch.arange(parts) / parts).repeat(len(x), 1)
    return x[:, None].expand(-1, parts).contiguous(), u


@exercise.check(points=5)
def up_where_u_is_below_p(student, rng):
    "Up where u < p with p = (x − ⌊x⌋)/ε, down elsewhere, each element with its own u."
    x = torch.full((5,), 0.125)
    ask_stochastic(  # p = 1/2
        student,
        x,
        Fixed(4, 2),
        torch.tensor([0.0, 0.2, 0.49, 0.51, 0.99]),
        why="p = (0.125 − 0)/0.25 = 0.5 for each of these.",
    )
    for fmt in (*FIXED, a_fixed_format(rng), BF16, FP8_E4M3):
        x = between(rng, fmt, 80).abs()
        u = torch.rand(len(x), generator=rng)
        ask_stochastic(student, x, fmt, u)
    drawn = between(rng, BF16, 80).abs(), torch.rand(80, generator=rng)
    for x, u in zip(*map(shapes_of, drawn), strict=True):
        ask_stochastic(student, x, BF16, u)


@exercise.check(points=2, needs="up_where_u_is_below_p")
def negative_numbers(student, rng):
    "Below zero, too, ⌊x⌋ is the lower neighbour, and p is the distance up from it."
    for fmt in (*FIXED, BF16):
        x = -between(rng, fmt, 80).abs()
        u = torch.rand(len(x), generator=rng)
        (lower, upper), p = beside(x, fmt), formats.odds(x, fmt)
        mistakes = {
            "This is biased for negative x: p is measured from 0's side. p = (x − ⌊x⌋)/ε with ⌊x⌋ the lower one.": (
                torch.where(u < 1 - p, upper, lower)
            ),
            "For negative x this always goes toward 0: cutting off is not ⌊x⌋. Begin at the lower neighbour.": upper,
            "This rounds |x| and puts the sign back. It is unbiased, too, but here u < p means up for every x, so "
            "that there is one right answer.": torch.where(u < 1 - p, lower, upper),
        }
        ask_stochastic(student, x, fmt, u, mistakes=mistakes)


@exercise.check(points=2, needs="up_where_u_is_below_p")
def a_value_stays(student, rng):
    "A number of the format never changes, for any u; x and u are unchanged."
    for fmt in (Fixed(4, 4), FP8_E4M3, FP8_E5M2, BF16):
        x = values(fmt).float()
        u = torch.rand(len(x), generator=rng)
        u[::3] = 0.0
        got = student.stochastic_round(x.clone(), fmt, u)
        bound = "At u = 0 a value of the format moves up: with p = 0 it never may. Up where u < p, not where u ≤ p."
        above = torch.cat([values(fmt)[1:], values(fmt)[-1:]])
        mistakes = {bound: torch.where(u == 0, above, x.double())}
        exact(got, x.double(), x, name=f"stochastic_round(x, {fmt}, u)", why=f"Here x is in {fmt}.", mistakes=mistakes)
        x, u = between(rng, fmt, 9), u[:9]
        got = checks.leaves_alone(lambda x, u, fmt=fmt: student.stochastic_round(x, fmt, u), x=x, u=u)
        checks.tensor(got, name="stochastic_round(x, fmt, u)", shape=x.shape, dtype=F32)
        above = x > 0  # of negative numbers another check speaks
        right = formats.stochastic(x, fmt, u)
        exact(got[above], right[above], x[above], name=f"stochastic_round(x, {fmt}, u), where x > 0,")


@exercise.check(points=3, needs=("negative_numbers", "a_value_stays"))
def the_odds_are_exact(student, rng):
    "Over a grid of all u the mean is x itself, to the last bit: E[Round(x)] = x."
    for fmt in (*FIXED, BF16, FP16, FP8_E4M3, FP8_E5M2):
        x, u = grid_of_odds(between(rng, fmt, 200), fmt)
        got = student.stochastic_round(x.clone(), fmt, u)
        checks.tensor(got, name="stochastic_round(x, fmt, u)", shape=x.shape, dtype=F32)
        why = f"Each x with u = 0, 1/{PARTS}, …, {PARTS - 1}/{PARTS}: the mean of the {PARTS} results."
        exact(got.double().mean(1).float(), x[:, 0].double(), x[:, 0], name=f"The mean in {fmt}", why=why)
        exact(got, formats.stochastic(x, fmt, u), x, name=f"stochastic_round(x, {fmt}, u)")


@exercise.check(points=3, needs="up_where_u_is_below_p")
def beyond_the_ends(student, rng):
    "Beyond the ends nothing is random: fixed point saturates; NaN and infinities stay."
    for fmt in (Fixed(4, 4), a_fixed_format(rng), FP8_E4M3):
        x, right = beyond(fmt)
        for u in (torch.zeros(len(x)), torch.full((len(x),), 0.999)):
            got = student.stochastic_round(x.clone(), fmt, u)
            exact(got, right, x, name=f"stochastic_round(x, {fmt}, u)", why=SATURATES)
    x = torch.tensor([math.inf, -math.inf, math.nan])
    got = student.stochastic_round(x.clone(), FP16, torch.tensor([0.0, 0.5, 0.9]))
    exact(got, x.double(), x, name="stochastic_round(x, FP16, u)", why="FP16 has infinities and NaN.")
