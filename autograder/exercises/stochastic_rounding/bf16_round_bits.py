"""Stochastic rounding to bfloat16 with an addition and a shift of bits. Oracle: the same sum in 64-bit integers."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks import number_formats as formats
from autograder.checks.number_formats import exact
from autograder.exercises.drawing import F32
from autograder.exercises.stochastic_rounding.codes import code, from_code, random_floats
from autograder.exercises.stochastic_rounding.inputs import shapes_of

exercise = Exercise("bf16_round_bits", points=10, minutes=15)

HIGH = 1 << 16


def random_bits(rng, n: int) -> torch.Tensor:
    return torch.randint(HIGH, (n,), generator=rng, dtype=torch.int32)


def ask_bits(student, x, rand16, expected, *, why: str = "", mistakes=None) -> None:
    """Compare as numbers; `expected` are codes."""
    got = student.bf16_round_bits(x.clone(), rand16.clone())
    name = "bf16_round_bits(x, rand16)"
    wrapped = "Return the numbers, not their codes: 16 bits each, read as bfloat16 with .view."
    checks.that(type(got) is not torch.Tensor or got.is_floating_point(), f"{name} holds integers. {wrapped}", got=got)
    if type(got) is torch.Tensor and got.dtype == torch.bfloat16:
        named = {sentence: from_code(value).float() for sentence, value in (mistakes or {}).items()}
        named["These are the codes as numbers: .to converts, .view reads the bits."] = expected.to(
            torch.int16
        ).bfloat16()
        exact(got.float(), from_code(expected).double(), x, name=name, why=why, mistakes=named)
    else:  # the type is wrong, and no mistake is named: at bfloat16's tolerance right values look like wrong ones
        checks.close(got, from_code(expected), name=name, why=why)


def bit_mistakes(x, rand16) -> dict:
    c, r = code(x), rand16.to(torch.int64)
    return {
        "You cut off the low half without a carry: add rand16 to all 32 bits, then shift.": c >> 16,
        "This rounds half up, the same every time: add rand16 instead of 0x8000.": (c + 0x8000) >> 16,
        "x.to(torch.int32) cuts the number, 1.004 to 1: x.view(torch.int32) reads its 32 bits.": (
            (x.clamp(-(2.0**30), 2.0**30).long() + r) >> 16
        ),
        "This rounds to nearest after the sum, as a conversion to bfloat16 does: cut the low 16 bits first.": (
            (c + r + 0x7FFF + ((c + r >> 16) & 1)) >> 16
        ),
        "This adds rand16 twice.": (c + 2 * r) >> 16,
        "This adds 1 more than rand16: add only rand16, or the odds of a carry are too high.": ((c + r + 1) >> 16),
        "You added rand16 to the upper half: add it to all 32 bits, before the shift.": (c >> 16) + r,
        "You subtracted rand16: add it.": (c - r) >> 16,
        "This adds 1 where rand16 < the low half. Its odds are right, but here the carry of the sum must decide.": (
            (c >> 16) + (r < (c & 0xFFFF)).long()
        ),
    }


@exercise.check(points=3)
def add_and_cut(student, rng):
    "Add rand16 to the 32 bits of x, then cut off the low 16: a carry leads to the next bfloat16."
    first = torch.tensor([1 + 2.0**-8, 1 + 2.0**-8, 1 + 2.0**-8, 1 + 2.0**-9, 1 + 2.0**-9])  # 1/2 or 1/4 of the way
    edges = torch.tensor([0x7FFF, 0x8000, 0x4000, 0xBFFF, 0xC000], dtype=torch.int32)
    drawn = zip(shapes_of(random_floats(rng, 300)), shapes_of(random_bits(rng, 300)), strict=True)
    for x, rand16 in ((first, edges), *drawn):
        expected = (code(x) + rand16) >> 16
        ask_bits(student, x, rand16, expected, mistakes=bit_mistakes(x, rand16))


@exercise.check(points=2, needs="add_and_cut")
def carry_into_the_exponent(student, rng):
    "If all mantissa bits are 1, the carry reaches the exponent, and 1.996 becomes 2."
    exponents = torch.randint(1, 253, (60,), generator=rng)
    x = ((exponents << 23 | 0x7F8000) | torch.randint(0x8000, (60,), generator=rng)).to(torch.int32).view(F32)
    x, rand16 = torch.cat([x, -x]), torch.full((120,), 0xFFFF, dtype=torch.int32)
    c = code(x)
    kept = (
        "You cut off the carry at the mantissa: let it run into the exponent, since the code of the next number is "
        "the next integer."
    )
    wrapped = c >> 23 << 7 | ((c >> 16) + 1) & 0x7F
    why = "The mantissa bits are all 1: the next bfloat16 is a power of two."
    ask_bits(student, x, rand16, (c + 0xFFFF) >> 16, why=why, mistakes={kept: wrapped})


@exercise.check(points=2, needs="add_and_cut")
def all_random_numbers(student, rng):
    "Of all 65,536 values of rand16 exactly as many go up as the low half of x."
    rand16 = torch.arange(HIGH, dtype=torch.int32)
    for x in random_floats(rng, 4):
        low = int(code(x) & 0xFFFF)
        got = student.bf16_round_bits(x.expand(HIGH).clone(), rand16.clone())
        checks.tensor(got, name="bf16_round_bits(x, rand16)", shape=(HIGH,), dtype=torch.bfloat16)
        above = int((got.float().abs() > x.abs()).sum())
        checks.that(
            above == low,
            f"x = {formats.digits(x.item())} has the low half {low}: {low} of the 65,536 values of rand16 should take "
            f"it away from 0, and {above} do.",
            why="Then E[Round(x)] = x, below 0 too: away from 0 with the odds low / 65,536.",
        )


@exercise.check(points=2, needs="add_and_cut")
def every_bf16_stays(student, rng):
    "A bfloat16 never changes, for any rand16: its low half is 0. x and rand16 are unchanged."
    unchanged_bits(student, rng)
    codes = torch.arange(HIGH)
    x = (codes << 16).to(torch.int64)
    x = torch.where(x >= 2**31, x - 2**32, x).to(torch.int32).view(F32)
    x, codes = x[~x.isnan()], codes[~x.isnan()]
    up = "This may add 65,536: rand16 reaches only 65,535, and a low half of 0 never carries."
    rand16 = torch.where(torch.arange(len(x)) % 2 == 0, 0xFFFF, random_bits(rng, len(x))).to(torch.int32)
    ask_bits(student, x, rand16, codes, mistakes={up: codes + 1})


def unchanged_bits(student, rng) -> None:
    """Check that a call leaves its arguments alone, and what it returns."""
    x, rand16 = random_floats(rng, 9), random_bits(rng, 9)
    got = checks.leaves_alone(student.bf16_round_bits, x=x, rand16=rand16)
    checks.tensor(got, name="bf16_round_bits(x, rand16)", shape=(9,), dtype=torch.bfloat16)
    exact(got.float(), from_code(code(x) + rand16 >> 16).double(), x, name="bf16_round_bits(x, rand16)")


@exercise.check(points=1, needs="add_and_cut")
def not_a_number(student, rng):
    "NaN stays NaN: its carry must not run into the sign."
    nan = torch.tensor([0x7FFFFFFF, -1, 0x7FC00000, 0x7F800001], dtype=torch.int32).view(F32)
    rand16 = torch.tensor([0xFFFF, 0xFFFF, 0, 0], dtype=torch.int32)
    got = student.bf16_round_bits(nan, rand16)
    checks.that(
        type(got) is torch.Tensor and bool(got.isnan().all()),
        "A NaN did not stay NaN. Adding to 0x7FFFFFFF carries into the sign, and cutting 0x7F800001 gives infinity: "
        "put NaN back where x is NaN (torch.where).",
        got=got,
        expected="NaN, four times",
    )
    among_numbers(student, rng, nan, rand16)


def among_numbers(student, rng, nan, rand16) -> None:
    """The numbers beside a NaN are rounded as ever."""
    order = torch.randperm(10, generator=rng)
    x, rand16 = (torch.cat(parts)[order] for parts in ((nan, random_floats(rng, 6)), (rand16, random_bits(rng, 6))))
    got = student.bf16_round_bits(x.clone(), rand16.clone())
    is_right = type(got) is torch.Tensor and got.dtype == torch.bfloat16
    checks.that(is_right, "bf16_round_bits(x, rand16) must return a tensor of bfloat16.", got=got)
    expected = from_code(code(x) + rand16 >> 16).double().masked_fill(x.isnan(), torch.nan)
    why = "Each number of x for itself: NaN stays NaN, and the others are rounded."
    exact(got.float(), expected, x, name="bf16_round_bits(x, rand16), with NaN in x,", why=why)
