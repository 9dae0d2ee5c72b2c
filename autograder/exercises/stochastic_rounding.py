"""Lab 06: less precision, on purpose. The checks of its seven exercises.

Every expected value comes from `autograder.checks.number_formats`, which enumerates a format from its codes. Tests of
odds go through all random numbers of a grid and are exact; those that draw fail a right answer once in 10⁹ runs, twice
in a row to count.
"""

import importlib.util
import math

import torch

from autograder import checks
from autograder.authoring import Lab
from autograder.checks import number_formats as formats
from autograder.checks.number_formats import beside, exact, values
from hpcdl.numerics.rounding import BF16, FP8_E4M3, FP8_E5M2, FP16, Fixed

lab = Lab("stochastic_rounding", number=6, title="Less precision, on purpose")

ROUNDING = tuple(f"hpcdl.numerics.rounding.{name}" for name in ("neighbours", "round_nearest", "stochastic_round"))
OWN = {
    "forbid": ROUNDING,
    "instead": "Here you write what it does: ε, floor and a comparison. Compare with it afterwards.",
}

WITH_EITHER = ("round_nearest_even", "stochastic_round")

neighbours = lab.exercise("neighbours", points=15, minutes=15, **OWN)
nearest_even = lab.exercise("round_nearest_even", points=15, minutes=10, uses=("neighbours",), **OWN)
stochastic = lab.exercise("stochastic_round", points=20, minutes=10, uses=("neighbours",), **OWN)
bits = lab.exercise("bf16_round_bits", points=15, minutes=15)
running = lab.exercise("running_sum", points=10, minutes=10, uses=WITH_EITHER)
sgd = lab.exercise("sgd_low_precision", points=15, minutes=10, uses=WITH_EITHER)
kernel = lab.exercise("rounding_kernel", points=10, minutes=15, functions=("rounding_kernel", "launch"))

F32, F64 = torch.float32, torch.float64
FIXED = (Fixed(4, 4), Fixed(2, 14), Fixed(8, 8))
FLOATING = (BF16, FP16, FP8_E4M3, FP8_E5M2)
BITS = {BF16: (7, -126), FP16: (10, -14), FP8_E4M3: (3, -6), FP8_E5M2: (2, -14)}  # mantissa bits, least exponent
PARTS = 16  # x in a check lie k/16 of the way between two values of the format


# ------------------------------------------------------------------------------------ numbers to round


def between(rng, fmt, n: int, parts: int = PARTS) -> torch.Tensor:
    """n numbers k/parts of the way (0 < k < parts) from one value of the format to the next, in all its sizes.

    None is below -fmt.max: in fixed point, where there is one more number, its absolute value would be outside.
    """
    grid = values(fmt)
    i = torch.randint(1, len(grid) - 1, (n,), generator=rng)
    k = torch.randint(1, parts, (n,), generator=rng)
    return (grid[i] + (grid[i + 1] - grid[i]) * k / parts).float()


def by_spacing(x, spacing):
    """The multiples of `spacing` below and above x, in float64."""
    return (x.double() / spacing).floor() * spacing, (x.double() / spacing).ceil() * spacing


def spacing_of(x, fmt, *, least: bool = True):
    """ε(x) of a floating-point format; without `least`, as if numbers below the smallest normal one had a finer one."""
    mantissa, emin = BITS[fmt]
    exponent = torch.frexp(x.double()).exponent - 1
    return 2.0 ** ((exponent.clamp_min(emin) if least else exponent) - mantissa)


# -------------------------------------------------------------------------------------------- neighbours


def two_neighbours(student, x, fmt, *, why: str, mistakes=None) -> None:
    """Ask for the neighbours of x, and compare with the two values found by searching all of the format's."""
    got = student.neighbours(x.clone(), fmt)
    checks.that(
        type(got) in (tuple, list) and len(got) == 2,
        "neighbours returns two tensors: end with `return lower, upper`.",
        got=got,
        expected="(lower, upper)",
    )
    for part, name in enumerate(("lower", "upper")):
        named = {sentence: value[part] for sentence, value in (mistakes or {}).items()}
        right = beside(x, fmt)
        if part == 0:
            named["The two are swapped: lower comes first."] = right[1]
        exact(got[part], right[part], x, name=f"{name}, {fmt},", why=why, mistakes=named)


def fixed_mistakes(x, fmt) -> dict:
    eps, (lower, upper) = 2.0**-fmt.fl, beside(x, fmt)
    cut = torch.where(x < 0, upper, lower)
    toward_zero = "Cutting off the digits goes toward 0, and that is up for negative x. ⌊x⌋ goes down: torch.floor."
    return {
        toward_zero: (cut, cut + eps),
        "The spacing is 2^-FL, from the fractional bits; here it is made of the integer bits.": by_spacing(
            x, 2.0**-fmt.il
        ),
        "Multiply by ε again: floor(x / ε) counts multiples of ε, and ⌊x⌋ is floor(x / ε) · ε.": (
            lower / eps,
            upper / eps,
        ),
        "These are whole numbers: divide by ε, then floor, then multiply by ε.": by_spacing(x, 1.0),
    }


@neighbours.check(points=4)
def fixed_point(student, rng):
    "In fixed point the neighbours are the multiples of ε = 2^−FL on either side of x."
    first = torch.tensor([0.30, -0.30])
    for fmt, x in ((Fixed(4, 2), first), *((fmt, between(rng, fmt, 60)) for fmt in FIXED)):
        why = f"ε = 2^-{fmt.fl} = {2.0**-fmt.fl:g} in {fmt}; ⌊x⌋ is the largest multiple of ε that is not above x."
        two_neighbours(student, x, fmt, why=why, mistakes=fixed_mistakes(x, fmt))


@neighbours.check(points=2, needs="fixed_point")
def a_value_of_the_format(student, rng):
    "A number that the format has is its own neighbour on both sides."
    for fmt in (Fixed(4, 4), *FLOATING):
        x = values(fmt).float()
        why = f"{fmt} can hold every one of these numbers, so nothing is to be rounded."
        apart = "Where x is in the format, both neighbours are x: take floor and ceil, not floor and floor + ε."
        above = torch.cat([values(fmt)[1:], values(fmt)[-1:]])
        two_neighbours(student, x, fmt, why=why, mistakes={apart: (x.double(), above)})


@neighbours.check(points=4, needs="fixed_point")
def floating_point(student, rng):
    "In floating point the spacing doubles with each power of two: ε(x) = 2^(e − mantissa bits)."
    for fmt in (BF16, FP16):
        mantissa, emin = BITS[fmt]
        k = torch.randint(max(emin, -30), 15, (40,), generator=rng)
        sign = 2 * torch.randint(0, 2, (40,), generator=rng) - 1
        x = (sign * (1 + (torch.randint(1 << mantissa, (40,), generator=rng) + 0.5) / (1 << mantissa)) * 2.0**k).float()
        machine, eps = 2.0**-mantissa, spacing_of(x, fmt)
        mistakes = {
            "The spacing is the same everywhere here: that of the numbers from 1 to 2. It grows with |x|.": by_spacing(
                x, machine
            ),
            "This spacing is half of what it is: with e = ⌊log₂|x|⌋, ε = 2^(e − mantissa bits).": by_spacing(
                x, eps / 2
            ),
            "This spacing is twice what it is. torch.frexp gives a fraction in [1/2, 1), so its exponent is e + 1.": (
                by_spacing(x, 2 * eps)
            ),
        }
        why = f"{fmt} has 2^{mantissa} values from 2^e to 2^(e+1), so they are ε = 2^(e − {mantissa}) apart."
        two_neighbours(student, x, fmt, why=why, mistakes=mistakes)


@neighbours.check(points=2, needs="floating_point")
def just_below_a_power_of_two(student, rng):
    "The last float32 before a power of two has the smaller spacing still."
    for fmt in (BF16, FP16):
        powers = torch.tensor([2.0**k for k in (-12, -3, 1, 7, 14)])
        x = torch.cat([torch.nextafter(powers, torch.zeros(1)), torch.nextafter(-powers, torch.zeros(1))])
        doubled = "log₂ in float32 is rounded too: just below 2^k it gives k. torch.frexp gives the exponent exactly."
        why = f"Between it and the power of two there is no other value of {fmt}."
        logarithm = 2.0 ** (torch.log2(x.abs()).floor().double() - BITS[fmt][0])
        two_neighbours(student, x, fmt, why=why, mistakes={doubled: by_spacing(x, logarithm)})


@neighbours.check(points=2, needs="floating_point")
def every_code(student, rng):
    "All 65,536 codes of bfloat16 and all 256 of both FP8: each two neighbours enclose the middle between them."
    for fmt in (FP8_E4M3, FP8_E5M2, BF16):
        x = formats.midpoints(fmt).float()
        finer = (
            "Below its smallest normal number a format's spacing stops shrinking: its exponent is at least "
            f"{BITS[fmt][1]} in {fmt}. These numbers are called subnormal."
        )
        why = f"x runs over the middles between all neighbouring values of {fmt}."
        two_neighbours(student, x, fmt, why=why, mistakes={finer: by_spacing(x, spacing_of(x, fmt, least=False))})


def beyond(fmt) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers outside a format that saturates, and what they become."""
    low, high = values(fmt)[0].item(), values(fmt)[-1].item()
    outside = [high + 0.01, 2 * high, 1e9, math.inf, low - 0.01, 3 * low, -1e9, -math.inf]
    return torch.tensor([*outside, math.nan]), torch.tensor([*[high] * 4, *[low] * 4, math.nan], dtype=F64)


SATURATES = "A format that has no infinity saturates: what lies outside [fmt.min, fmt.max] becomes the nearer end."


@neighbours.check(points=1, needs="fixed_point")
def the_ends(student, rng):
    "Beyond the ends a format without infinity saturates; infinities and NaN stay in the others."
    for fmt in (Fixed(4, 4), FP8_E4M3):
        x, right = beyond(fmt)
        for part, name in zip(student.neighbours(x.clone(), fmt), ("lower", "upper"), strict=True):
            exact(part, right, x, name=f"{name}, {fmt},", why=SATURATES)
    x = torch.tensor([math.inf, -math.inf, math.nan])
    for part, name in zip(student.neighbours(x.clone(), FP16), ("lower", "upper"), strict=True):
        exact(part, x.double(), x, name=f"{name}, FP16,", why="FP16 has infinities and NaN.")


# ------------------------------------------------------------------------------------ round_nearest_even


def ask_nearest(student, x, fmt, *, why: str = "", mistakes=None) -> None:
    got = student.round_nearest_even(x.clone(), fmt)
    name = f"round_nearest_even(x, {fmt})"
    exact(got, formats.nearest(x, fmt), x, name=name, why=why, mistakes=mistakes)


def off_the_middle(rng, fmt, n: int) -> torch.Tensor:
    x = between(rng, fmt, n)
    return x[formats.odds(x, fmt) != 0.5]


@nearest_even.check(points=4)
def the_nearer_one(student, rng):
    "Of the two neighbours the nearer one, in fixed and in floating point."
    for fmt in (*FIXED, BF16, FP8_E4M3):
        x = off_the_middle(rng, fmt, 60)
        lower, upper = beside(x, fmt)
        mistakes = {
            "This is the lower neighbour always: choose the nearer of the two.": lower,
            "This is the upper neighbour always: choose the nearer of the two.": upper,
            "This cuts off (rounds toward 0): choose the nearer of the two.": torch.where(x < 0, upper, lower),
            "This is the farther neighbour: compare x - lower with upper - x.": lower + upper - formats.nearest(x, fmt),
        }
        ask_nearest(student, x, fmt, mistakes=mistakes)


@nearest_even.check(points=5, needs="the_nearer_one")
def ties_to_even(student, rng):
    "From the very middle to the neighbour whose last bit is 0."
    for fmt in (*FIXED, FP8_E4M3, FP8_E5M2, BF16):
        x = formats.midpoints(fmt).float()
        lower, upper = beside(x, fmt)
        away = torch.where(x < 0, lower, upper)
        right = formats.nearest(x, fmt)
        mistakes = {
            "You round the middle up (half up), and so push sums upward on average: take the even neighbour.": upper,
            "You round the middle down: take the even neighbour.": lower,
            "You round the middle away from 0, as one does at school: take the even neighbour.": away,
            "You round the middle toward 0: take the even neighbour.": lower + upper - away,
            "You take the odd neighbour: the last bit must be 0.": lower + upper - right,
        }
        if fmt in BITS:
            even = (lower / spacing_of(lower, fmt)) % 2 == 0
            fine = (
                "Below a power of two the upper neighbour has another exponent: even is lower / ε(x), with x's own ε."
            )
            mistakes[fine] = torch.where(even, lower, upper)
        why = "x runs over the middles between all neighbouring values. Even means: the last bit of the code is 0."
        ask_nearest(student, x, fmt, why=why, mistakes=mistakes)


@nearest_even.check(points=3, needs="ties_to_even")
def any_bits(student, rng):
    "The same bits as the conversion in hardware, for float32 numbers of every size."
    for fmt in (BF16, FP16):
        codes = torch.randint(-(2**31), 2**31, (2000,), generator=rng).to(torch.int32)
        x = codes.view(F32)
        x = x[x.isfinite() & (x.abs() < values(fmt)[-1])]
        x = torch.cat([x, x.frexp().mantissa, x.frexp().mantissa * 2.0 ** BITS[fmt][1]])
        got = student.round_nearest_even(x.clone(), fmt)
        exact(got, x.to(formats.CODES[fmt][0]).double(), x, name=f"round_nearest_even(x, {fmt})")


@nearest_even.check(points=3, needs="the_nearer_one")
def ends_and_zeros(student, rng):
    "Fixed point saturates, NaN and infinities stay, and a floating-point zero keeps its sign."
    for fmt in (Fixed(4, 4), FP8_E4M3):
        x, right = beyond(fmt)
        exact(student.round_nearest_even(x.clone(), fmt), right, x, name=f"round_nearest_even(x, {fmt})", why=SATURATES)
    x = torch.tensor([math.inf, -math.inf, math.nan])
    exact(student.round_nearest_even(x.clone(), FP16), x.double(), x, name="round_nearest_even(x, FP16)")
    got = student.round_nearest_even(torch.tensor([0.0, -0.0, 1e-30, -1e-30]), FP16)
    checks.tensor(got, name="round_nearest_even(x, FP16)", shape=(4,), dtype=F32)
    checks.equal(
        [math.copysign(1.0, zero) for zero in got.tolist()],
        [1.0, -1.0, 1.0, -1.0],
        name="The signs of round_nearest_even(tensor([0., -0., 1e-30, -1e-30]), FP16)",
        why="IEEE 754 keeps the sign of what underflows: -0 says from which side 0 was reached.",
    )


# -------------------------------------------------------------------------------------- stochastic_round


def ask_stochastic(student, x, fmt, u, *, why: str = "", mistakes=None) -> None:
    got = student.stochastic_round(x.clone(), fmt, u.clone())
    right, (lower, upper) = formats.stochastic(x, fmt, u), beside(x, fmt)
    inside, p = (x != lower) & (x != upper), formats.odds(x, fmt)
    named = {
        "One random number decides for all: each element has its own u.": formats.stochastic(x, fmt, u.flatten()[:1]),
        "This counts u twice: up where u < p, and nothing else is random.": torch.where(2 * u < p, upper, lower),
        "The odds are turned round: x near the upper neighbour should seldom go down. Up where u < p.": torch.where(
            u < 1 - p, upper, lower
        ),
        "This goes up where u ≥ 1 − p. Its odds are right too; here it is up where u < p, to get one answer.": (
            torch.where((u >= 1 - p) & inside, upper, lower)
        ),
        "This does not use u: it rounds to nearest.": formats.nearest(x, fmt),
        "This rounds down always: up where u < p.": lower,
    }
    if type(fmt) is Fixed:
        twice = "This adds u twice: floor(x / ε + u + u). Up where u < p, by one ε and no more."
        named[twice] = by_spacing(x + 2 * u * fmt.eps, fmt.eps)[0].clamp(fmt.min, fmt.max)
    exact(got, right, x, name=f"stochastic_round(x, {fmt}, u)", why=why, mistakes=(mistakes or {}) | named)


def grid_of_odds(x, fmt, parts: int = PARTS):
    """Every x with every u of a grid, all u equally often: for x a fraction k/parts up, k of the parts go up."""
    u = (torch.arange(parts) / parts).repeat(len(x), 1)
    return x[:, None].expand(-1, parts).contiguous(), u


@stochastic.check(points=6)
def up_where_u_is_below_p(student, rng):
    "Up where u < p with p = (x − ⌊x⌋)/ε, down elsewhere, each element by its own u."
    x, fmt = torch.tensor([0.25, 0.25, 0.25, 0.25]), Fixed(4, 1)  # p = 1/2
    ask_stochastic(
        student, x, fmt, torch.tensor([0.0, 0.49, 0.51, 0.99]), why="p = (0.25 − 0)/0.5 = 0.5 for each of these."
    )
    for fmt in (*FIXED, BF16, FP8_E4M3):
        x = between(rng, fmt, 80).abs()
        u = torch.rand(len(x), generator=rng)
        ask_stochastic(student, x, fmt, u)


@stochastic.check(points=3, needs="up_where_u_is_below_p")
def negative_numbers(student, rng):
    "Below zero too ⌊x⌋ is the lower neighbour, and p the way up from there."
    for fmt in (*FIXED, BF16):
        x = -between(rng, fmt, 80).abs()
        u = torch.rand(len(x), generator=rng)
        (lower, upper), p = beside(x, fmt), formats.odds(x, fmt)
        mistakes = {
            "This is biased for negative x: p is measured from 0's side. p = (x − ⌊x⌋)/ε with ⌊x⌋ the lower one.": (
                torch.where(u < 1 - p, upper, lower)
            ),
            "This goes toward 0 always where x is negative: cutting off is not ⌊x⌋. Begin at the lower one.": upper,
            "This rounds |x| and puts the sign back. It is unbiased too, but here u < p means up for every x, "
            "so that all get one answer.": torch.where(u < 1 - p, lower, upper),
        }
        ask_stochastic(student, x, fmt, u, mistakes=mistakes)


@stochastic.check(points=3, needs="up_where_u_is_below_p")
def a_value_stays(student, rng):
    "A number that the format has stays what it is, whatever u."
    for fmt in (Fixed(4, 4), FP8_E4M3, FP8_E5M2, BF16):
        x = values(fmt).float()
        u = torch.rand(len(x), generator=rng)
        u[::3] = 0.0
        got = student.stochastic_round(x.clone(), fmt, u)
        bound = "At u = 0 a value of the format moves up: with p = 0 it never may. Up where u < p, not where u ≤ p."
        above = torch.cat([values(fmt)[1:], values(fmt)[-1:]])
        mistakes = {bound: torch.where(u == 0, above, x.double())}
        exact(got, x.double(), x, name=f"stochastic_round(x, {fmt}, u)", why=f"Here x is in {fmt}.", mistakes=mistakes)


@stochastic.check(points=4, needs=("negative_numbers", "a_value_stays"))
def the_odds_are_exact(student, rng):
    "Over a grid of all u the mean is x itself, to the last bit: E[Round(x)] = x."
    for fmt in (*FIXED, BF16, FP16, FP8_E4M3, FP8_E5M2):
        x, u = grid_of_odds(between(rng, fmt, 200), fmt)
        got = student.stochastic_round(x.clone(), fmt, u)
        checks.tensor(got, name="stochastic_round(x, fmt, u)", shape=x.shape, dtype=F32)
        why = f"Each x with u = 0, 1/{PARTS}, …, {PARTS - 1}/{PARTS}: the mean of the {PARTS} results."
        exact(got.double().mean(1).float(), x[:, 0].double(), x[:, 0], name=f"The mean in {fmt}", why=why)


@stochastic.check(points=4, needs="up_where_u_is_below_p")
def beyond_the_ends(student, rng):
    "Beyond the ends nothing is random: fixed point saturates; NaN and infinities stay."
    for fmt in (Fixed(4, 4), FP8_E4M3):
        x, right = beyond(fmt)
        for u in (torch.zeros(len(x)), torch.full((len(x),), 0.999)):
            got = student.stochastic_round(x.clone(), fmt, u)
            exact(got, right, x, name=f"stochastic_round(x, {fmt}, u)", why=SATURATES)
    x = torch.tensor([math.inf, -math.inf, math.nan])
    got = student.stochastic_round(x.clone(), FP16, torch.tensor([0.0, 0.5, 0.9]))
    exact(got, x.double(), x, name="stochastic_round(x, FP16, u)", why="FP16 has infinities and NaN.")


# --------------------------------------------------------------------------------------- bf16_round_bits

HIGH = 1 << 16


def code(x: torch.Tensor) -> torch.Tensor:
    """The 32 bits of float32 numbers, as whole numbers from 0 to 2³² − 1."""
    return x.view(torch.int32).to(torch.int64) & 0xFFFFFFFF


def from_code(codes: torch.Tensor) -> torch.Tensor:
    """The bfloat16 of 16-bit codes given as whole numbers."""
    return (codes & 0xFFFF).to(torch.uint16).view(torch.bfloat16)


def random_floats(rng, n: int) -> torch.Tensor:
    """Finite float32 of random bits, so of every size, sign and last digit; none so large that it overflows bf16."""
    x = torch.randint(-(2**31), 2**31, (2 * n,), generator=rng).to(torch.int32).view(F32)
    ends_in_a_power_of_two = (code(x) >> 16) % 128 == 127  # a check of its own goes there
    return x[(x.abs() < 3e38) & ~ends_in_a_power_of_two][:n]


def random_bits(rng, n: int) -> torch.Tensor:
    return torch.randint(HIGH, (n,), generator=rng, dtype=torch.int32)


def ask_bits(student, x, rand16, expected, *, why: str = "", mistakes=None) -> None:
    """Compare as numbers; `expected` are codes."""
    got = student.bf16_round_bits(x.clone(), rand16.clone())
    name = "bf16_round_bits(x, rand16)"
    wrapped = "Return the numbers, not their codes: end with .to(torch.int16).view(torch.bfloat16)."
    checks.that(type(got) is not torch.Tensor or got.is_floating_point(), f"{name} holds integers. {wrapped}", got=got)
    named = {sentence: from_code(value).float() for sentence, value in (mistakes or {}).items()}
    if type(got) is torch.Tensor and got.dtype == torch.bfloat16:
        got = got.float()
        exact(got, from_code(expected).double(), x, name=name, why=why, mistakes=named)
    else:
        checks.close(got, from_code(expected), name=name, why=why)


def bit_mistakes(x, rand16) -> dict:
    c, r = code(x), rand16.to(torch.int64)
    return {
        "The low half is cut off, and no carry arrives: add rand16 to all 32 bits, then shift.": c >> 16,
        "This rounds half up, the same every time: add rand16 in place of 0x8000.": (c + 0x8000) >> 16,
        "This adds rand16 twice.": (c + 2 * r) >> 16,
        "rand16 was added to the upper half: add it to all 32 bits, before the shift.": (c >> 16) + r,
        "rand16 was subtracted: add it.": (c - r) >> 16,
        "This adds 1 where rand16 < the low half. Its odds are right; but here the carry of a sum decides.": (
            (c >> 16) + (r < (c & 0xFFFF)).long()
        ),
    }


@bits.check(points=5)
def add_and_cut(student, rng):
    "Add rand16 to the 32 bits of x, then cut the low 16 off: a carry takes it to the next bfloat16."
    first = torch.tensor([1 + 2.0**-8, 1 + 2.0**-8, 1 + 2.0**-8, 1 + 2.0**-9, 1 + 2.0**-9])  # 1/2 or 1/4 of the way
    edges = torch.tensor([0x7FFF, 0x8000, 0x4000, 0xBFFF, 0xC000], dtype=torch.int32)
    for x, rand16 in ((first, edges), (random_floats(rng, 300), random_bits(rng, 300))):
        expected = (code(x) + rand16) >> 16
        ask_bits(student, x, rand16, expected, mistakes=bit_mistakes(x, rand16))


@bits.check(points=3, needs="add_and_cut")
def carry_into_the_exponent(student, rng):
    "Where all mantissa bits are 1 the carry runs on into the exponent, and 1.996 becomes 2."
    exponents = torch.randint(1, 253, (60,), generator=rng)
    x = ((exponents << 23 | 0x7F8000) | torch.randint(0x8000, (60,), generator=rng)).to(torch.int32).view(F32)
    x, rand16 = torch.cat([x, -x]), torch.full((120,), 0xFFFF, dtype=torch.int32)
    c = code(x)
    kept = "The carry was cut off at the mantissa: let it run on, the code of the next number is the next integer."
    wrapped = c >> 23 << 7 | ((c >> 16) + 1) & 0x7F
    why = "The mantissa bits are all 1: the next bfloat16 is a power of two."
    ask_bits(student, x, rand16, (c + 0xFFFF) >> 16, why=why, mistakes={kept: wrapped})


@bits.check(points=3, needs="add_and_cut")
def all_random_numbers(student, rng):
    "Of all 65,536 values of rand16 exactly as many go up as the low half of x says."
    rand16 = torch.arange(HIGH, dtype=torch.int32)
    for x in random_floats(rng, 4):
        low = int(code(x) & 0xFFFF)
        got = student.bf16_round_bits(x.expand(HIGH).clone(), rand16)
        checks.tensor(got, name="bf16_round_bits(x, rand16)", shape=(HIGH,), dtype=torch.bfloat16)
        above = int((got.float().abs() > x.abs()).sum())
        checks.that(
            above == low,
            f"x = {formats.digits(x.item())} has the low half {low}: {low} of the 65,536 values of rand16 should take "
            f"it away from 0, and {above} do.",
            why="Then E[Round(x)] = x, below 0 too: away from 0 with the odds low / 65,536.",
        )


@bits.check(points=2, needs="add_and_cut")
def every_bf16_stays(student, rng):
    "Every bfloat16 stays what it is, whatever rand16: its low half is 0."
    codes = torch.arange(HIGH)
    x = (codes << 16).to(torch.int64)
    x = torch.where(x >= 2**31, x - 2**32, x).to(torch.int32).view(F32)
    x, codes = x[~x.isnan()], codes[~x.isnan()]
    up = "This adds 65,536 at the most: rand16 reaches 65,535, and a low half of 0 never carries."
    rand16 = torch.where(torch.arange(len(x)) % 2 == 0, 0xFFFF, random_bits(rng, len(x))).to(torch.int32)
    ask_bits(student, x, rand16, codes, mistakes={up: codes + 1})


@bits.check(points=2, needs="add_and_cut")
def not_a_number(student, rng):
    "NaN stays NaN: its carry must not run over into the sign."
    nan = torch.tensor([0x7FFFFFFF, -1, 0x7FC00000, 0x7F800001], dtype=torch.int32).view(F32)
    rand16 = torch.tensor([0xFFFF, 0xFFFF, 0, 0], dtype=torch.int32)
    got = student.bf16_round_bits(nan, rand16)
    checks.that(
        type(got) is torch.Tensor and bool(got.isnan().all()),
        "A NaN did not stay one. Adding to 0x7FFFFFFF carries into the sign, and cutting 0x7F800001 gives infinity: "
        "put NaN back where x is NaN (torch.where).",
        got=got,
        expected="NaN, four times",
    )


# ------------------------------------------------------------------------------------------- running_sum

COLUMNS = 4000  # sums that are run side by side


def nearest_sums(xs, fmt, *, before: bool = False, after: bool = False) -> torch.Tensor:
    """Partial sums, rounded after every addition; or the terms `before` it, or the exact sums `after` it, alone."""
    if after:
        return formats.nearest(xs.cumsum(0), fmt)
    total, sums = torch.zeros_like(xs[0]), []
    for x in xs:
        total = total + formats.nearest(x, fmt).float() if before else formats.nearest(total + x, fmt).float()
        sums.append(total)
    return torch.stack(sums).double()


def ask_sum(student, xs, fmt, mode, generator=None):
    generator = generator or torch.Generator().manual_seed(0)
    got = student.running_sum(xs.clone(), fmt, mode, generator)
    checks.tensor(got, name=f"running_sum(xs, {fmt}, {mode!r}, generator)", shape=xs.shape, dtype=F32)
    return got


def sizes(rng, fmt, n: int, columns: int = 1) -> torch.Tensor:
    """Terms of 0.2 to 0.9 ε, in multiples of ε/16, so that float32 adds them exactly."""
    return torch.randint(3, 15, (n, columns), generator=rng) / 16 * 2.0**-fmt.fl


@running.check(points=3)
def rounded_after_every_addition(student, rng):
    "After each addition the sum is rounded to the format; the result holds all partial sums."
    for fmt in (Fixed(4, 4), Fixed(8, 8)):
        xs = sizes(rng, fmt, 40)[:, 0] * 3
        mistakes = {
            "This rounds sums that were added exactly: round after each addition, and go on from the rounded sum.": (
                nearest_sums(xs, fmt, after=True)
            ),
            "This rounds the terms and not the sum: after each addition, round the sum.": nearest_sums(
                xs, fmt, before=True
            ),
            "The sum is not rounded at all.": xs.double().cumsum(0),
        }
        name = f'running_sum(xs, {fmt}, "nearest", generator)'
        exact(ask_sum(student, xs, fmt, "nearest"), nearest_sums(xs, fmt), xs, name=name, mistakes=mistakes)
    xs = between(rng, FP8_E5M2, 30).reshape(10, 3).clamp(-4, 4)
    got = ask_sum(student, xs, FP16, "nearest")
    exact(got, nearest_sums(xs, FP16), xs, name='running_sum(xs, FP16, "nearest", generator)')


@running.check(points=2, needs="rounded_after_every_addition")
def nearest_stalls(student, rng):
    "To nearest, a sum of ones in bfloat16 stalls at 256, and no term moves it any more."
    for fmt, x, stop in ((BF16, 1.0, 256.0), (BF16, 0.375, 128.0), (FP16, 0.25, 512.0)):
        xs = torch.full((int(stop / x * 1.2),), x)
        got = ask_sum(student, xs, fmt, "nearest")[-1].item()
        checks.that(
            got == stop,
            f"{len(xs)} times {x:g} in {fmt} end at {got:g}; rounded to nearest they stall at {stop:g}.",
            why=f"From {stop:g} on {x:g} is half a spacing of {fmt} at the most, and a tie goes back to the even one.",
        )


@running.check(points=3, needs="rounded_after_every_addition", seconds=10)
def stochastic_does_not_stall(student, rng):
    "Rounded at random the sum is right on average, each element by a random number of its own."
    fmt, n = Fixed(8, 8), 60
    eps = fmt.eps
    halves = ask_sum(student, torch.full((n, 50), eps / 2), fmt, "stochastic", fresh(rng))[-1] / eps
    checks.that(
        bool((halves % n != 0).any()) or bool((halves == halves[0]).all()),
        f"Of 50 sums of {n} times ε/2 each one went up in every step or in none: draw new random numbers in each step.",
    )

    def average():
        xs = (sizes(rng, fmt, n) / 4).expand(n, COLUMNS).clone()  # far below ε/2
        sums = ask_sum(student, xs, fmt, "stochastic", fresh(rng))[-1] / eps
        checks.that(
            bool((sums != sums[0]).any()),
            f"{COLUMNS} equal sums side by side all end at the same value: draw a random number for each element of "
            "the sum, torch.rand(s.shape, generator=generator), not one for all.",
        )
        right = xs[:, 0].double().sum().item() / eps
        why = "E[Round(s + x)] = s + x at each step, so the mean of the sums is the exact sum."
        checks.mean(sums, right, low=0, high=n, what=f"the sum of {n} terms below ε/2, in ε,", why=why)

    checks.retested(average)


def fresh(rng) -> torch.Generator:
    return torch.Generator().manual_seed(int(torch.randint(2**31, (), generator=rng)))


NUMBERS = (
    "Draw every random number from the generator that you are given: torch.rand(shape, generator=generator). "
    "Without it torch draws from a state that the whole program shares."
)


def repeats(call, name: str) -> None:
    """The generator decides: from the same state the same, and going on with it something else."""
    generator = torch.Generator().manual_seed(3)
    first, second = call(generator), call(generator)
    again = call(torch.Generator().manual_seed(3))
    checks.that(
        bool((first == again).all()), f"With a generator in the same state {name} gave another result. {NUMBERS}"
    )
    checks.that(
        bool((first != second).any()),
        f"{name} gave the same twice in a row from one generator: don't seed it anew, and don't copy it; draw from it.",
    )


@running.check(points=2, needs="rounded_after_every_addition")
def its_own_generator(student, rng):
    "All randomness comes from the generator: the same state gives the same sum."
    xs = sizes(rng, Fixed(8, 8), 20).expand(20, 50).clone()
    repeats(lambda generator: ask_sum(student, xs, Fixed(8, 8), "stochastic", generator), "running_sum")


# ------------------------------------------------------------------------------------- sgd_low_precision


def weights(rng, fmt, n: int):
    """Weights in the format, well inside it, and gradients that are multiples of ε/4."""
    eps = 2.0**-fmt.fl
    w = torch.randint(-40, 41, (n,), generator=rng) * eps
    return w, torch.randint(-30, 31, (n,), generator=rng) * eps / 4


def ask_step(student, w, grad, lr, fmt, mode, generator=None):
    generator = generator or torch.Generator().manual_seed(0)
    got = student.sgd_low_precision(w.clone(), grad.clone(), lr, fmt, mode, generator)
    checks.tensor(got, name="sgd_low_precision(...)", shape=w.shape, dtype=F32)
    return got


@sgd.check(points=4)
def a_step_to_nearest(student, rng):
    "With mode “nearest”: w − lr · grad, rounded to the nearest number of the format."
    for fmt in (Fixed(4, 4), Fixed(8, 8)):
        (w, grad), lr = weights(rng, fmt, 60), 0.5
        new = w.double() - lr * grad.double()
        mistakes = {
            "It climbs: the step goes against the gradient, w - lr * grad.": formats.nearest(w + lr * grad, fmt),
            "The learning rate is missing.": formats.nearest(w - grad, fmt),
            "The new weights are not rounded: they would not fit into 16 bits.": new,
            "This rounds the gradient, and not the new weight.": w - lr * formats.nearest(grad, fmt),
            "This cuts off: round to the nearest number.": torch.where(
                new < 0, beside(new, fmt)[1], beside(new, fmt)[0]
            ),
            "This rounds down always.": beside(new, fmt)[0],
        }
        name = f'sgd_low_precision(w, grad, {lr}, {fmt}, "nearest", generator)'
        got = ask_step(student, w, grad, lr, fmt, "nearest")
        exact(got, formats.nearest(new, fmt), new, name=name, why="x is w − lr · grad here.", mistakes=mistakes)


@sgd.check(points=2, needs="a_step_to_nearest")
def weights_stay_in_the_format(student, rng):
    "With mode “stochastic” each new weight is one of the two neighbours of w − lr · grad."
    for fmt in (Fixed(4, 4), Fixed(2, 14)):
        w, grad = weights(rng, fmt, 200)
        got = ask_step(student, w, grad, 0.5, fmt, "stochastic").double()
        new = w.double() - 0.5 * grad.double()
        lower, upper = beside(new, fmt)
        inside = bool(((got == lower) | (got == upper)).all())
        checks.that(
            inside,
            f"A new weight is no neighbour of w − lr · grad in {fmt}: round the new weight itself, once and last.",
            got=got.float(),
            expected=f"for each weight one of {fmt}'s two neighbours",
        )


@sgd.check(points=2, needs="weights_stay_in_the_format")
def each_weight_its_own(student, rng):
    "Each weight has a random number of its own."
    fmt, n = Fixed(2, 14), 400
    w, grad = torch.zeros(n), torch.full((n,), -(2.0**-fmt.fl))
    moved = int((ask_step(student, w, grad, 0.5, fmt, "stochastic", fresh(rng)) != 0).sum())
    checks.that(
        0 < moved < n,
        f"Of {n} weights that all should move with odds 1/2, {moved} did: they share one random number, or there is "
        "none. Draw one for each weight, torch.rand(w.shape, generator=generator).",
    )


@sgd.check(points=4, needs="each_weight_its_own")
def small_updates_count(student, rng):
    "An update far below half a spacing moves the weight in expectation: one in so many times, by a whole spacing."
    fmt, n = Fixed(2, 14), 50_000
    eps = 2.0**-fmt.fl
    for share in (1 / 16, -1 / 16, 1 / 4):
        grad, sign = torch.full((n,), share * eps), round(math.copysign(1, share))

        def one_step(grad=grad, share=share, sign=sign):
            moves = ask_step(student, torch.zeros(n), grad, 1.0, fmt, "stochastic", fresh(rng)) / eps
            why = f"lr · grad is {share:g} ε. To nearest none would move; at random each by ε with odds {abs(share):g}."
            checks.mean(moves, -share, low=min(0, -sign), high=max(0, -sign), what="a weight's move, in ε,", why=why)

        checks.retested(one_step)


@sgd.check(points=2, needs="weights_stay_in_the_format")
def no_global_generator(student, rng):
    "All randomness comes from the generator: the same state gives the same step."
    w, grad = weights(rng, Fixed(2, 14), 200)
    repeats(lambda g: ask_step(student, w, grad, 0.3, Fixed(2, 14), "stochastic", g), "sgd_low_precision")


@sgd.check(points=1, needs="a_step_to_nearest")
def leaves_its_inputs_alone(student, rng):
    "w and grad are the same after the step; the new weights are returned."
    w, grad = weights(rng, Fixed(4, 4), 9)
    before = w.clone(), grad.clone()
    student.sgd_low_precision(w, grad, 0.5, Fixed(4, 4), "nearest", torch.Generator().manual_seed(0))
    checks.unchanged(w, before[0], name="w")
    checks.unchanged(grad, before[1], name="grad")


# --------------------------------------------------------------------------------------- rounding_kernel


def needs_triton() -> None:
    checks.that(
        importlib.util.find_spec("triton") is not None,
        "This exercise needs Linux: there is no Triton on this machine. It is graded on one that has it; the other "
        "90 points are all yours here.",
    )


def numbered_bits(seed: int, n: int) -> torch.Tensor:
    """The 16 random bits of the elements 0 to n − 1: eight to a call of Philox, low half first."""
    words = formats.philox(seed, range(-(-n // 8))).reshape(-1)
    halves = torch.from_numpy(words.astype("int64"))
    return torch.stack([halves & 0xFFFF, halves >> 16], dim=1).reshape(-1)[:n]


def kernel_mistakes(x, seed: int) -> dict:
    """Results as float32, by the mistake that they show."""
    c, i = code(x), torch.arange(len(x))
    halves, words = numbered_bits(seed, len(x) + 8), formats.philox(seed, range(len(x))).astype("int64")
    wrong = {
        "This cuts off without adding random bits.": 0,
        "This rounds half up: add the random bits in place of 0x8000.": 0x8000,
        "The halves are swapped: even elements take the low half of their word, odd ones the high half.": halves[i ^ 1],
        "All eight elements of a call take its first word: element i takes word (i % 8) // 2.": (
            halves[i // 8 * 8 + i % 2]
        ),
        "This makes a call of Philox for each element, counter i: one call serves eight elements, counter i // 8.": (
            torch.from_numpy(words[:, 0]) & 0xFFFF
        ),
        "Only the even elements are right: odd ones take the high half of their word, word >> 16.": (
            halves[i // 2 * 2]
        ),
    }
    return {sentence: from_code((c + r) >> 16).float() for sentence, r in wrong.items()}


def ask_kernel(student, x, n: int, seed: int, block: int) -> torch.Tensor:
    got = student.launch(x.clone(), n, seed, block)
    checks.tensor(got, name=f"launch(x, {n}, {seed}, {block})", shape=x.shape, dtype=torch.bfloat16)
    return got.float()


def check_bits(got, x, seed: int, name: str) -> None:
    expected = from_code((code(x) + numbered_bits(seed, len(x))) >> 16)
    why = "Element i adds the half i % 2 of the word (i % 8) // 2 of Philox(seed, i // 8) to its 32 bits."
    exact(got, expected.double(), x, name=name, why=why, mistakes=kernel_mistakes(x, seed))


@kernel.check(points=5, seconds=20)
def the_same_bits(student, rng):
    "The same bits as on every other machine: element i takes its 16 bits from Philox(seed, i // 8)."
    needs_triton()
    x = random_floats(rng, 256)
    check_bits(ask_kernel(student, x, 256, 7, 256), x, 7, "launch(x, 256, 7, 256)")


@kernel.check(points=3, needs="the_same_bits", seconds=20)
def any_launch(student, rng):
    "The same bits for every block size; and nothing is read or written beyond the first n."
    needs_triton()
    for n, block in ((1000, 64), (1000, 512), (1000, 1024), (8, 16), (1, 16)):
        x = random_floats(rng, n + 24)
        name = f"launch(x, {n}, 3, {block})"
        got = ask_kernel(student, x, n, 3, block)
        check_bits(got[:n], x[:n], 3, name)
        checks.that(
            bool((got[n:] == 0).all()),
            f"{name} wrote behind the end: the last program has lanes with i ≥ n. Mask load and store: mask=i < n.",
            got=got[n:],
        )


@kernel.check(points=2, needs="the_same_bits", seconds=20)
def every_seed(student, rng):
    "Every seed has its own bits, also one of 64 bits."
    needs_triton()
    x = random_floats(rng, 64)
    for seed in (0, 1, 2**31 + 5, 2**40 + 3):
        check_bits(ask_kernel(student, x, 64, seed, 64), x, seed, f"launch(x, 64, {seed}, 64)")
