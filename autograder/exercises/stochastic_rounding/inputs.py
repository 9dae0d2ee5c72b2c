"""Numbers to round, between two values of a format and beyond its ends; and whether a result is one of the two."""

import math

import torch

from autograder import checks
from autograder.checks.number_formats import beside, digits, values
from autograder.exercises.drawing import F64
from hpcdl.numerics.rounding import Fixed, Format

FIXED = (Fixed(4, 4), Fixed(2, 14), Fixed(8, 8))
PARTS = 16  # x in a check lie k/16 of the way between two values of the format


def between(rng, fmt, n: int, parts: int = PARTS) -> torch.Tensor:
    """n numbers k/parts of the way (0 < k < parts) from one value of the format to the next, in all its sizes.

    None is below -fmt.max: in fixed point, where there is one more number, its absolute value would be outside.
    """
    grid = values(fmt)
    i = torch.randint(1, len(grid) - 1, (n,), generator=rng)
    k = torch.randint(1, parts, (n,), generator=rng)
    return (grid[i] + (grid[i + 1] - grid[i]) * k / parts).float()


def a_fixed_format(rng) -> Fixed:
    """One of 6 to 14 bits."""
    il, fl = (int(torch.randint(low, 8, (), generator=rng)) for low in (2, 4))
    return Fixed(il, fl)


def shapes_of(x: torch.Tensor) -> list[torch.Tensor]:
    """Return the numbers of x as they are, in three axes, in a matrix whose rows are apart in memory, and only one."""
    return [x, x.reshape(2, -1, 5), x.reshape(-1, 5).T, x[:1]]


def beyond(fmt) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers outside a format that saturates, and what they become."""
    low, high = values(fmt)[0].item(), values(fmt)[-1].item()
    outside = [high + 0.01, 2 * high, 1e9, math.inf, low - 0.01, 3 * low, -1e9, -math.inf]
    return torch.tensor([*outside, math.nan]), torch.tensor([*[high] * 4, *[low] * 4, math.nan], dtype=F64)


SATURATES = "A format without infinity saturates: a number outside [fmt.min, fmt.max] becomes the nearer end."


def are_neighbours(got: torch.Tensor, x: torch.Tensor, fmt: Format, what: str, of: str) -> None:
    """Check that each of `got` is one of the two values of a format next to x, or the end of the format beyond which x
    is.

    The sentence begins with `what`, "a new weight is", and names x by `of`.
    """
    ends = values(fmt)[[0, -1]]
    lower, upper = beside(x.double().nan_to_num(0.0).clamp(*ends), fmt)
    wrong = (got != lower) & (got != upper)
    if bool(wrong.any()):
        value, exact = (t[wrong][0].item() for t in (got, x))
        checks.fail(
            f"{what} {digits(value)}, which is not a neighbour of {of} = {digits(exact)} in {fmt}. Round this number "
            "itself, in each step, to one of its two neighbours.",
            got=got,
            expected=f"numbers of {fmt}, each next to the exact number, or the end of the format that is nearer to it",
        )
