"""A mask chooses element by element. Oracle: Python's own division, one number after the other."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.tensors.drawing import built, integer, whole

exercise = Exercise(
    "safe_ratio",
    points=10,
    minutes=3,
    meanings={
        "Boolean value of Tensor": "`if` asks one question, and b == 0 has an answer for each element. torch.where "
        "takes them all.",
        "ZeroDivision": "// is whole-number division: it rounds down, and for whole numbers it has no answer if b is "
        "0. Use /.",
    },
)


def ratios(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    dtype = a.dtype if a.is_floating_point() else torch.float32

    def element(*index: int) -> float:
        top, bottom = a[index].item(), b[index].item()
        return top / bottom if bottom else 0.0

    return built(tuple(a.shape), dtype, element)


def mistakes(a: torch.Tensor, b: torch.Tensor) -> dict:
    return {
        "1/0 is inf and 0/0 is nan: choose 0 there, with torch.where.": a / b,
        "nan_to_num replaces inf by the largest number of the format: choose by b instead, with torch.where.": (
            torch.nan_to_num(a / b)
        ),
        "nan times 0 is nan: a product with a mask does not remove it. torch.where chooses, without arithmetic.": (
            (b != 0) * a / b
        ),
        "(b != 0) * (a / b) multiplies inf by 0, which is nan: torch.where chooses, without arithmetic.": (b != 0)
        * (a / b),
        "A negative b divides as well: leave out only zeros, `b == 0`.": torch.where(b > 0, a / b, 0),
        "You choose by the result, and an inf of a is lost. Choose by b.": torch.where((a / b).isfinite(), a / b, 0),
        "// rounds down to whole numbers: use /.": torch.where(b == 0, b, a // torch.where(b == 0, 1, b)),
        "Where b is 0 the result must be 0: you return a there.": torch.where(b == 0, a, a / b),
    } | {
        f"You have added {small:g} to b: where b is 0 the ratio is huge and not 0, elsewhere it is a little off.": (
            a / (b + small)
        )
        for small in (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12)
    }


def with_zeros(b: torch.Tensor) -> torch.Tensor:
    """Every third number is 0."""
    b.view(-1)[::3] = 0
    return b


@exercise.check(points=4)
def zero_where_b_is_zero(student, rng):
    "a / b, and 0 where b is 0, also where a is 0 too; a tiny or a negative b is not a zero."
    for dtype, tiny in ((torch.float32, 1e-45), (torch.float64, 5e-324)):  # the smallest numbers that are not 0
        a, b = whole(rng, 2, 5, dtype=dtype), with_zeros(whole(rng, 2, 5, dtype=dtype))
        a[0, 0], b[0, 4] = 0.0, 1e-9
        a[1, 3], b[1, 3] = torch.finfo(dtype).eps, tiny
        b[0, 1], a[0, 2] = -b[0, 1], -a[0, 2]
        got = student.safe_ratio(a.clone(), b.clone())
        checks.close(got, ratios(a, b), name="safe_ratio(a, b)", mistakes=mistakes(a, b), atol=0.0)


@exercise.check(points=3)
def any_tensor(student, rng):
    "Whole numbers, a single number, only zeros, -0.0; an inf or nan of a or of b."
    for shape, dtype in (((3, 4), torch.int64), ((), torch.float32), ((2, 1, 3), torch.float64)):
        a, b = whole(rng, *shape, dtype=dtype), whole(rng, *shape, dtype=dtype)
        b = with_zeros(b) if b.dim() else b
        got = student.safe_ratio(a.clone(), b.clone())
        name = f"safe_ratio(a, b) of shape {shape}, {str(dtype).removeprefix('torch.')}"
        checks.close(got, ratios(a, b), name=name, mistakes=mistakes(a, b))
    a, b = whole(rng, 4), torch.zeros(4)
    checks.close(student.safe_ratio(a.clone(), b.clone()), torch.zeros(4), name="safe_ratio(a, zeros)")
    inf, nan = torch.inf, torch.nan
    for a, b in (
        (torch.tensor([inf, -inf, nan, inf]), torch.tensor([2.0, 4.0, 1.0, 0.0])),
        (torch.tensor([1.0, inf, -inf, 3.0]), torch.tensor([inf, inf, inf, inf])),
        (torch.tensor([1.0, 2.0, 0.0, inf]), torch.tensor([nan, -0.0, nan, -4.0])),
    ):
        name = f"safe_ratio({show.show(a)}, {show.show(b)})"
        checks.close(student.safe_ratio(a.clone(), b.clone()), ratios(a, b), name=name, mistakes=mistakes(a, b))


@exercise.check(points=3, needs="zero_where_b_is_zero")
def leaves_its_arguments_alone(student, rng):
    "a and b are the same after the call."
    shape = integer(rng, 1, 6), integer(rng, 1, 6)
    a, b = whole(rng, *shape), with_zeros(whole(rng, *shape))
    before = a.clone(), b.clone()
    got = student.safe_ratio(a, b)
    checks.unchanged(a, before[0], name="a")
    checks.unchanged(b, before[1], name="b")
    checks.close(got, ratios(a, b), name="safe_ratio(a, b)", mistakes=mistakes(a, b))
