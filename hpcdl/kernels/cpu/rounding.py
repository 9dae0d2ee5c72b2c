"""Stochastic rounding on the CPU, compiled by Numba: bit for bit what `hpcdl.numerics.rounding` does in plain torch.

Elements go through in blocks that fit the first-level cache. A block's random bits come from 256 calls of Philox, side
by side in vector registers, written in the order in which the elements take them: so the rounding that follows is one
straight loop. Blocks need nothing from each other; each thread takes a row of them.

The first call compiles, for a few seconds; Numba keeps the result on disk, in NUMBA_CACHE_DIR, beside this file, or in
the user's cache folder, whichever can be written.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from hpcdl.kernels.cpu.philox import BLOCK, CALLS, after, fill
from hpcdl.numerics.rounding.formats import Fixed, Format
from hpcdl.numerics.rounding.philox import PER_CALL
from hpcdl.numerics.rounding.plain import HALF_BELOW as HALF_BELOW_IN_TORCH
from hpcdl.numerics.rounding.plain import PARTS
from hpcdl.numerics.rounding.threads import in_rows

NAN, HALF_BELOW = np.float32(np.nan), np.float32(HALF_BELOW_IN_TORCH)
SIGN, REST, INFINITY = np.int32(-0x80000000), np.int32(0x7FFFFFFF), np.int32(0x7F800000)
UPPER, QUIET_NAN = np.int32(-0x10000), np.int32(0x7FC00000)
BRAIN, FIXED, LONG, FLOAT = range(4)  # kinds of rules: LONG is fixed point of more than 16 bits


class RoundingRule(NamedTuple):
    """A format in the numbers that the loops need."""

    kind: int
    low: np.float32
    high: np.float32
    beyond: np.float32  # what becomes of a size above `high`
    gap: np.float32  # of fixed point
    parts: np.float32  # of a gap in 1
    least: np.float32  # the smallest normal number of floating point
    lost: np.int32  # the bits that float32 has and the format has not


def rule_of(fmt: Format) -> RoundingRule:
    """The rule of a format."""
    low, high = np.float32(fmt.min), np.float32(fmt.max)
    if isinstance(fmt, Fixed):
        kind, gap, parts = FIXED if fmt.wl <= 16 else LONG, np.float32(fmt.eps), np.float32(PARTS / fmt.eps)
        return RoundingRule(kind, low, high, high, gap, parts, np.float32(0), np.int32(0))
    beyond = np.float32(np.inf) if fmt.has_infinity else high
    kind, one = BRAIN if fmt.exponent_bits == 8 else FLOAT, np.float32(1)
    return RoundingRule(kind, low, high, beyond, one, one, np.float32(2.0**fmt.min_exponent), np.int32(fmt.random_bits))


def compiled(kernel: Callable) -> Callable:
    """The kernel, compiled when first called and kept on disk where any folder can be written."""
    try:
        return njit(nogil=True, cache=True)(kernel)
    except RuntimeError:  # an installation and a home that are both read-only
        return njit(nogil=True)(kernel)


@intrinsic
def as_float(typing, bits):
    """The float32 of 32 bits."""
    return types.float32(types.int32), lambda context, builder, _, args: builder.bitcast(args[0], ir.FloatType())


@intrinsic
def as_bits(typing, x):
    """The 32 bits of a float32."""
    return types.int32(types.float32), lambda context, builder, _, args: builder.bitcast(args[0], ir.IntType(32))


# -- on one block -----------------------------------------------------------------------------------------------------


@njit
def cut(parts, r):
    """floor((n + r) / 2^16), n the integer nearest to `parts`, as `_round_fixed` in torch."""
    return np.float32((np.int32(np.floor(parts + HALF_BELOW)) + np.int32(r)) >> 16)


@njit
def cut_long(parts, r):
    """As `cut`, for words of more than 16 bits: with 16 more they take an integer of 64."""
    return np.float32((np.int64(np.floor(parts + HALF_BELOW)) + np.int64(r)) >> 16)


@njit
def round_brain(x, r, out):
    for j in range(x.size):
        bits = as_bits(x[j])
        rounded = (bits + np.int32(r[j])) & UPPER
        out[j] = as_float(QUIET_NAN if (bits & REST) > INFINITY else rounded)


@njit
def round_fixed(x, r, out, rule):
    for j in range(x.size):
        rounded = cut(min(max(x[j], rule.low), rule.high) * rule.parts, r[j]) * rule.gap
        out[j] = rounded if x[j] == x[j] else NAN


@njit
def round_long(x, r, out, rule):
    for j in range(x.size):
        rounded = cut_long(min(max(x[j], rule.low), rule.high) * rule.parts, r[j]) * rule.gap
        out[j] = rounded if x[j] == x[j] else NAN


@njit
def turn(words, turned):
    """32 random bits for each element: its own half of a word, and then the other."""
    for i in range(words.size):
        turned[2 * i] = (words[i] << np.uint32(16)) | (words[i] >> np.uint32(16))
        turned[2 * i + 1] = words[i]


@njit
def round_float(x, r, out, rule):
    """As `_round_float` in torch."""
    rest, mask = np.uint32(32 - rule.lost), np.int32(-1) << rule.lost
    for j in range(x.size):
        size = abs(x[j])
        added = rule.least if size < rule.least else np.float32(0)
        size = as_float((as_bits(size + added) + np.int32(r[j] >> rest)) & mask) - added
        size = rule.beyond if size > rule.high else size
        out[j] = as_float(as_bits(size) | (as_bits(x[j]) & SIGN)) if x[j] == x[j] else NAN


@njit
def round_block(x, words, place, out, rule):
    """Round a block from the element `place` on; the random bits of all of it are in `words`."""
    r = words.view(np.uint16)[place:]
    if rule.kind == BRAIN:
        round_brain(x, r, out)
    elif rule.kind == FIXED:
        round_fixed(x, r, out, rule)
    elif rule.kind == LONG:
        round_long(x, r, out, rule)
    else:
        turned = np.empty(BLOCK, np.uint32)
        turn(words.view(np.uint32), turned)
        round_float(x, turned[place:], out, rule)


@njit
def store(values, out, rule):
    """Rounded values as the format keeps them: the upper half of the word, or the integers of fixed point."""
    for j in range(values.size):
        if rule.kind == BRAIN:
            out[j] = np.int16(as_bits(values[j]) >> 16)
        else:
            out[j] = np.int16(values[j] / rule.gap) if values[j] == values[j] else np.int16(0)


@njit
def descend(w, g, v, out, rule, lr, momentum):
    """v <- momentum v + g, out = w - lr v for stored `w`."""
    for j in range(w.size):
        v[j] = momentum * v[j] + g[j]
        word = np.int32(w[j])
        value = as_float(word << 16) if rule.kind == BRAIN else np.float32(word) * rule.gap
        out[j] = value - lr * v[j]


# -- on the blocks of one thread --------------------------------------------------------------------------------------


@compiled
def round_blocks(x, out, rule, first, last, skip, call, k0, k1):
    """Round the blocks `first` to `last - 1`; block 0 begins `skip` elements before x, with number `call` of Philox."""
    words = np.empty(2 * CALLS, np.uint64)
    for block in range(first, last):
        begin = block * BLOCK - skip
        low, high = max(begin, 0), min(begin + BLOCK, x.size)
        fill(words, call + np.uint64(block * CALLS), k0, k1, (after(x, high), after(out, high)))
        round_block(x[low:high], words, low - begin, out[low:high], rule)


@compiled
def store_blocks(x, out, rule, first, last, skip, call, k0, k1):
    """As `round_blocks`, where `out` keeps what the format stores."""
    words, values = np.empty(2 * CALLS, np.uint64), np.empty(BLOCK, np.float32)
    for block in range(first, last):
        begin = block * BLOCK - skip
        low, high = max(begin, 0), min(begin + BLOCK, x.size)
        fill(words, call + np.uint64(block * CALLS), k0, k1, (after(x, high), after(out, high)))
        rounded = values[: high - low]
        round_block(x[low:high], words, low - begin, rounded, rule)
        store(rounded, out[low:high], rule)


@compiled
def sgd_blocks(w, g, v, rule, lr, momentum, first, last, skip, call, k0, k1):
    """The step of `hpcdl.numerics.rounding.sgd_step` on these blocks."""
    words, values = np.empty(2 * CALLS, np.uint64), np.empty(BLOCK, np.float32)
    for block in range(first, last):
        begin = block * BLOCK - skip
        low, high = max(begin, 0), min(begin + BLOCK, w.size)
        fill(words, call + np.uint64(block * CALLS), k0, k1, (after(w, high), after(g, high), after(v, high)))
        updated = values[: high - low]
        descend(w[low:high], g[low:high], v[low:high], updated, rule, lr, momentum)
        round_block(updated, words, low - begin, updated, rule)
        store(updated, w[low:high], rule)


# -- on all -----------------------------------------------------------------------------------------------------------


def round_into(x: torch.Tensor, out: torch.Tensor, fmt: Format, seed: int, offset: int) -> None:
    """`hpcdl.numerics.rounding.plain.round_into`, by as many threads as torch uses."""
    rule = rule_of(fmt)
    if out.dtype == torch.float32:
        blocks, arrays = round_blocks, (x.numpy(), out.numpy())
    else:
        blocks, arrays = store_blocks, (x.numpy(), out.view(torch.int16).numpy())
    in_threads(lambda *place: blocks(*arrays, rule, *place), x.numel(), seed, offset)


def sgd_into(
    w: torch.Tensor,
    g: torch.Tensor,
    v: torch.Tensor,
    fmt: Format,
    lr: float,
    momentum: float,
    seed: int,
    offset: int,
) -> None:
    """`hpcdl.numerics.rounding.sgd.sgd_into`, by as many threads as torch uses."""
    arrays = w.view(torch.int16).numpy(), g.numpy(), v.numpy()
    constants = rule_of(fmt), np.float32(lr), np.float32(momentum)
    in_threads(lambda *place: sgd_blocks(*arrays, *constants, *place), w.numel(), seed, offset)


def in_threads(work: Callable, n: int, seed: int, offset: int) -> None:
    """Call `work(first, last, skip, call, k0, k1)` for rows of the blocks of n elements, a thread for each row."""
    call, skip = divmod(offset, PER_CALL)
    key = np.uint64(call), np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    blocks = -(-(skip + n) // BLOCK)
    rows = max(1, min(torch.get_num_threads(), blocks // 16))
    in_rows(lambda first, last: work(first, last, skip, *key), blocks, rows)
