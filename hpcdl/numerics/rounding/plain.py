"""Stochastic rounding in plain torch: what the compiled kernels of `hpcdl.kernels` compute too, to the last bit."""

import torch
from torch import Tensor

from hpcdl.numerics.rounding.formats import Fixed, Float, Format, stored
from hpcdl.numerics.rounding.philox import random_bits
from hpcdl.numerics.rounding.threads import in_rows, one_thread

CHUNK = 1 << 18  # elements: what a chunk needs stays in the cache
PARTS = 1 << 16  # of a gap of fixed point, between which random bits choose
HALF_BELOW = 0.5 - 2.0**-25  # the largest float32 below 1/2: floor(y + it) is nearest to y where y + 1/2 has rounded up


def round_into(x: Tensor, out: Tensor, fmt: Format, seed: int, offset: int) -> None:
    """Round flat tensors in plain torch, chunk by chunk; `out` is in float32 or as `fmt` stores it.

    Each thread has chunks of its own: they are a hundred operations of microseconds each, and threads that wait for
    each other after every one of them take longer than one alone, a hundred times longer where another program has the
    second core.
    """

    def round_chunks(first: int, last: int) -> None:
        for start in range(CHUNK * first, min(CHUNK * last, x.numel()), CHUNK):
            part = x[start : start + CHUNK]
            r = random_bits(seed, offset + start, part.numel(), x.device, fmt.random_bits)
            rounded = round_with(part, r, fmt)
            out[start : start + CHUNK] = rounded if out.dtype == torch.float32 else stored(rounded, fmt)

    chunks = -(-x.numel() // CHUNK)
    rows = min(torch.get_num_threads(), chunks) if x.device.type == "cpu" else 1
    with one_thread():
        in_rows(round_chunks, chunks, max(1, rows))


def round_with(x: Tensor, r: Tensor, fmt: Format) -> Tensor:
    """`x` rounded with given random bits `r`, int32 in 0 to 2^`fmt.random_bits` - 1."""
    if isinstance(fmt, Fixed):
        rounded = _round_fixed(x, r, fmt)
    elif fmt.exponent_bits == 8:  # the exponents of float32: the code is the upper half of the word
        rounded = _cut(x, r, fmt)
    else:
        rounded = _round_float(x, r, fmt)
    # A sum shows whether there may be NaN (or infinities of both signs): to look at each would take as long as Philox.
    if x.sum().isnan():
        rounded.masked_fill_(x.isnan(), torch.nan)
    return rounded


def _round_fixed(x: Tensor, r: Tensor, fmt: Fixed) -> Tensor:
    """In integers, since floats have too few bits for such sums."""
    n = x.clamp(fmt.min, fmt.max).mul_(PARTS / fmt.eps).add_(HALF_BELOW).floor_()
    n = n.to(torch.int32 if fmt.wl <= 16 else torch.int64)
    return n.add_(r).bitwise_right_shift_(16).float().mul_(fmt.eps)


def _cut(x: Tensor, r: Tensor, fmt: Float) -> Tensor:
    """Return the bits of float32 that `fmt` has not cut off, after random ones were added to them."""
    return (x.view(torch.int32) + r).bitwise_and_(-1 << fmt.random_bits).view(torch.float32)


def _round_float(x: Tensor, r: Tensor, fmt: Float) -> Tensor:
    """As for BF16, once a number is added to x that is subnormal in `fmt` that makes it normal, with the same gap."""
    size, least = x.abs(), 2.0**fmt.min_exponent
    added = (size < least).float().mul_(least)
    size = _cut(size.add_(added), r, fmt).sub_(added)
    return fmt.bounded(size).copysign_(x)
