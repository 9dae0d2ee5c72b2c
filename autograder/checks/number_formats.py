"""Shared checks of exercises on number formats: all values of a format, the neighbours of x, random bits,
probabilities.

This oracle shares no line with the library: a format's values are enumerated from its codes, and found by searching.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from autograder import checks
from autograder.checks.ladder import Mistakes
from hpcdl.numerics.rounding import BF16, FP8_E4M3, FP8_E5M2, FP16, Fixed, Format

CODES = {  # torch's dtype of a floating-point format, and integers of its size
    BF16: (torch.bfloat16, torch.int16),
    FP16: (torch.float16, torch.int16),
    FP8_E4M3: (torch.float8_e4m3fn, torch.uint8),
    FP8_E5M2: (torch.float8_e5m2, torch.uint8),
}


@cache
def values(fmt: Format) -> torch.Tensor:
    """Return every finite value of a format, ascending, in float64."""
    if isinstance(fmt, Fixed):
        half = 1 << (fmt.il + fmt.fl - 1)
        return torch.arange(-half, half, dtype=torch.float64) * 2.0**-fmt.fl
    dtype, integers = CODES[fmt]
    codes = torch.arange(1 << 8 * dtype.itemsize).to(integers).view(dtype).double()
    return codes[codes.isfinite()].unique()  # sorted; +0 and -0 are one value


def midpoints(fmt: Format) -> torch.Tensor:
    """Return the midpoints between neighbouring values of a format, in float64."""
    return (values(fmt)[:-1] + values(fmt)[1:]) / 2


def beside(x: torch.Tensor, fmt: Format) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest value <= x and the smallest >= x, in float64, for finite x within the format's range."""
    grid, x = values(fmt), x.double().contiguous()
    return grid[torch.searchsorted(grid, x, right=True) - 1], grid[torch.searchsorted(grid, x)]


def odds(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return the probability with which x is rounded up, in float64; 0 if x is a value of the format."""
    lower, upper = beside(x, fmt)
    return (x.double() - lower) / (upper - lower).masked_fill(upper == lower, 1.0)


def is_odd(value: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return whether the last bit of a value's code is 1."""
    if isinstance(fmt, Fixed):
        return (value * 2.0**fmt.fl) % 2 == 1
    dtype, integers = CODES[fmt]
    return value.to(dtype).view(integers) & 1 == 1


def nearest(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Return the nearer neighbour of x, with ties to even, in float64."""
    (lower, upper), p = beside(x, fmt), odds(x, fmt)
    return torch.where((p > 0.5) | (p == 0.5) & is_odd(lower, fmt), upper, lower)


def stochastic(x: torch.Tensor, fmt: Format, u: torch.Tensor) -> torch.Tensor:
    """Return the upper neighbour if u is below the odds, otherwise the lower one, in float64."""
    lower, upper = beside(x, fmt)
    return torch.where(u.double() < odds(x, fmt), upper, lower)


# Random bits


def philox(seed: int, counters: Any) -> np.ndarray:
    """Return Philox4x32-10 `(n, 4)` for a 64-bit seed and n counters; the upper three words of a counter are 0.

    Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    low = np.uint64(0xFFFFFFFF)
    c = [np.asarray(counters, dtype=np.uint64) & low, *(np.zeros(len(counters), np.uint64) for _ in range(3))]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> np.uint64(32) ^ c[1] ^ key[0], b & low, a >> np.uint64(32) ^ c[3] ^ key[1], a & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(c, axis=-1)


# Verdicts


def exact(
    got: Any,
    expected: torch.Tensor,
    x: torch.Tensor,
    *,
    name: str,
    why: str = "",
    mistakes: Mistakes = None,
    place: Callable[[int], str] | None = None,
) -> None:
    """Check that `got` holds exactly the values `expected`, as float32; the sentence names the x of the first
    difference, or what `place` says of its place in the flat tensor."""
    expected = expected.float()
    try:
        checks.close(got, expected, name=name, why=why, mistakes=mistakes, rtol=0.0, atol=0.0)
    except checks.CheckFailure as failure:
        if failure.where:  # right in type, shape and dtype: a value differs
            wrong = ((got != expected) & ~(got.isnan() & expected.isnan())).reshape(-1)
            first = int(wrong.to(torch.uint8).argmax())
            at = [digits(t.reshape(-1)[first].item()) for t in (x, got, expected)]
            where = place(first) if place else f"for x = {at[0]}"
            failure.message = f"{name} is {at[1]} {where}, expected {at[2]}."
            failure.where = f"{int(wrong.sum())} of {wrong.numel()} differ; this one first." if len(wrong) > 1 else ""
        raise


def digits(x: float) -> str:
    """Show a number with enough digits to distinguish it from its neighbours in float32."""
    texts = (f"{x:.{n}g}" for n in range(6, 10))
    return next((t for t in texts if np.float32(t) == np.float32(x)), f"{x:.9g}")
