"""The same 32 bits, looked at as a whole number. Oracle: NumPy's bits, and IEEE 754."""

import numpy as np
import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.tensors.drawing import integer

exercise = Exercise(
    "cut",
    points=10,
    minutes=4,
    meanings={
        "not implemented for 'Float'": "Shifts and & are for whole numbers: look at the bits of x first, "
        "`x.view(torch.int32)`.",
    },
)


def without_low_half(x: torch.Tensor) -> torch.Tensor:
    bits = np.array(x.tolist(), dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return torch.from_numpy(np.array(bits.view(np.float32))).reshape(x.shape)


def mistakes(x: torch.Tensor) -> dict:
    numbers, bits = x.nan_to_num(0.0, 0.0, 0.0).to(torch.int32), x.view(torch.int32)
    return {
        "`.to(torch.int32)` converts the number: 0.7 becomes 0. `.view(torch.int32)` does not change the bits, but "
        "reads them as a whole number.": (numbers >> 16 << 16).float(),
        "Half way: `.to(torch.int32)` has converted the number, and then you read its bits as a float.": (
            numbers >> 16 << 16
        ).view(torch.float32),
        "At the end you converted the whole number into a float of that size: `.view(torch.float32)` reads its bits "
        "instead.": (bits >> 16 << 16).float(),
        "These are the bits as whole numbers: read them as floats again, `.view(torch.float32)`.": bits >> 16 << 16,
        "bfloat16 rounds to the nearest of its numbers: here, cut the low bits, towards 0.": x.bfloat16().float(),
        "The upper half has moved down to the lower one: move it up again.": (bits >> 16).view(torch.float32),
        "You cut the numbers to whole numbers: clear the low 16 of the 32 bits instead.": x.trunc(),
        "You kept the low half and cut the upper one.": (bits & 0xFFFF).view(torch.float32),
    }


def numbers(rng, n: int) -> torch.Tensor:
    """Of many sizes, both signs, with all of their bits in use."""
    sizes = 10.0 ** (8 * torch.rand(n, generator=rng) - 4)
    return sizes * (2 * torch.randint(0, 2, (n,), generator=rng) - 1)


def exact(got, x: torch.Tensor, name: str) -> None:
    expected = without_low_half(x)
    checks.close(got, expected, name=name, rtol=0.0, atol=0.0, mistakes=mistakes(x))
    lost = (got.signbit() != expected.signbit()) & ~expected.isnan()
    checks.that(not bool(lost.any()), f"{name}: the sign of a zero is lost. -0.0 has a bit for it.", got=got)


@exercise.check(points=4)
def the_low_half_is_zero(student, rng):
    "The upper 16 bits stay, the lower 16 are 0, for numbers of every size and both signs."
    for _ in range(3):
        x = numbers(rng, 5)
        exact(student.cut(x.clone()), x, "cut(x)")


@exercise.check(points=3)
def special_numbers(student, rng):
    "Zeros of both signs, infinities, nan, the smallest and the largest numbers; a single number, a matrix."
    tiny = 1.4e-45 * (integer(rng, 1, 9) << 16 | 0xABC)
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, tiny, -3.4e38, 1.17549435e-38, torch.nan])
    exact(student.cut(x.clone()), x, "cut(x)")
    for x in (numbers(rng, 1)[0], numbers(rng, 6).view(2, 3)):
        exact(student.cut(x.clone()), x, f"cut(x) of shape {tuple(x.shape)}")
    got = student.cut(torch.tensor([torch.nan]))
    checks.close(got, torch.tensor([torch.nan]), name="cut(tensor([nan]))")


@exercise.check(points=3, needs="the_low_half_is_zero")
def leaves_x_alone(student, rng):
    "x is the same after the call: the bits that a view shows are x's own."
    x = numbers(rng, integer(rng, 1, 9))
    before = x.clone()
    got = student.cut(x)
    checks.that(
        checks.same(x, before),
        "Your function has cut x itself: `x.view(torch.int32)` is not a copy, and `&=` and other in-place steps write "
        "into x's memory. `bits & ...` makes a new tensor.",
        got=x,
        expected=before,
    )
    exact(got, x, "cut(x)")
