"""The neighbours of a number in a format, and the nearer of them."""

import torch
from torch import Tensor

from hpcdl.numerics.rounding.formats import FLOATS, Fixed, Format, checked


def neighbours(x: Tensor, fmt: Format) -> tuple[Tensor, Tensor]:
    """`(lower, upper)`, float32: the largest number of `fmt` that is <= x, and the smallest that is >= x.

    Both are x itself where x belongs to the format; else they are q floor(x/q) and q ceil(x/q), where q is the gap
    there. Beyond the range: where the format saturates both are its end; where it has infinities the outer one is
    infinite, the inner one the largest number. NaN has NaN for neighbours. Raises ValueError for a tensor that is not
    of floats of 16 or 32 bits, or a `fmt` that is no format.
    """
    wide = checked(x, fmt).double()
    q = fmt.quantum(wide)
    lower, upper = torch.floor(wide / q) * q, torch.ceil(wide / q) * q
    finite = wide.isfinite()
    lower = torch.where(finite & (lower > fmt.max), fmt.max, lower)
    upper = torch.where(finite & (upper < fmt.min), fmt.min, upper)
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


def round_nearest(x: Tensor, fmt: Format) -> Tensor:
    """Return the number of `fmt` nearest to each `x`, float32; of two equally near the one whose last bit is 0.

    Finite numbers beyond the largest by half a gap or more become infinite, or saturate where `fmt` says so; infinities
    and NaN stay, a zero keeps its sign in a floating-point format. Raises ValueError as `neighbours` does.
    """
    x = checked(x, fmt)
    if isinstance(fmt, Fixed):
        return fmt.bounded(torch.round(x.clamp(fmt.min, fmt.max) / fmt.eps) * fmt.eps)
    if not fmt.has_infinity:  # casts differ here between versions of torch: some give NaN
        x = x.clamp(fmt.min, fmt.max)
    if fmt == FLOATS.get(fmt.name):
        return x.to(fmt.dtype).float()
    wide = x.double()  # `dtype` only stores a format of your own, and may have more numbers
    q = fmt.quantum(wide)
    return fmt.bounded(torch.round(wide / q) * q).float()
