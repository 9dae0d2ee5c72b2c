"""Stochastic rounding on the CPU, compiled by Numba: bit for bit what `hpcdl.numerics.rounding` does in plain torch.

Elements go through in blocks that fit the first-level cache. A block's random bits come from 256 calls of Philox, side
by side in vector registers, written in the order in which the elements take them: so the rounding that follows is one
straight loop. Blocks need nothing from each other; each thread takes a row of them.

The first call compiles, for a few seconds; Numba keeps the result on disk, in NUMBA_CACHE_DIR, beside this file, or in
the user's cache folder, whichever can be written.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from hpcdl.numerics.rounding.formats import Fixed, Format
from hpcdl.numerics.rounding.philox import KEY_STEPS, MULTIPLIERS, PER_CALL, ROUNDS

CALLS = 256  # of Philox for one block: the loop over them has a constant length, or it would not be vectorized
BLOCK = CALLS * PER_CALL
M0, M1, STEP0, STEP1, LOW, HALF = (np.uint64(c) for c in (*MULTIPLIERS, *KEY_STEPS, 0xFFFFFFFF, 32))
ONE, ZERO, NAN = np.float32(1), np.float32(0), np.float32(np.nan)
MOST = np.float32(1 - 2**-17)  # 1 - u of r = 0
SIGN, REST, INFINITY = np.int32(-0x80000000), np.int32(0x7FFFFFFF), np.int32(0x7F800000)
UPPER, QUIET_NAN = np.int32(-0x10000), np.int32(0x7FC00000)
BRAIN, FIXED, FLOAT = range(3)  # kinds of rules


class Rule(NamedTuple):
    """A format in the numbers that the loops need."""

    kind: int
    low: np.float32
    high: np.float32
    beyond: np.float32  # what becomes of a size above `high`
    gap: np.float32  # of fixed point
    per_gap: np.float32
    mantissa: np.int32
    least: np.int32  # the smallest exponent field, that of the subnormal numbers


def rule_of(fmt: Format) -> Rule:
    """The rule of a format."""
    low, high = np.float32(fmt.min), np.float32(fmt.max)
    if isinstance(fmt, Fixed):
        return Rule(FIXED, low, high, high, np.float32(fmt.eps), np.float32(1 / fmt.eps), np.int32(0), np.int32(0))
    beyond = np.float32(np.inf) if fmt.has_infinity else high
    kind = BRAIN if fmt.exponent_bits == 8 else FLOAT
    return Rule(kind, low, high, beyond, ONE, ONE, np.int32(fmt.mantissa_bits), np.int32(fmt.min_exponent + 127))


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
def fill(words, call, k0, k1):
    """The words of `CALLS` calls of Philox from number `call`, two in each uint64; as `philox` does it in torch."""
    for i in range(CALLS):
        c0, c2 = call + np.uint64(i), np.uint64(0)
        c1, c3 = c0 >> HALF, np.uint64(0)
        a, b = k0, k1
        for _ in range(ROUNDS):
            p0, p1 = (c0 & LOW) * M0, (c2 & LOW) * M1
            c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ a, p1, (p0 >> HALF) ^ c3 ^ b, p0
            a += STEP0
            b += STEP1
        words[2 * i] = (c0 & LOW) | (c1 << HALF)
        words[2 * i + 1] = (c2 & LOW) | (c3 << HALF)


@njit
def cut(y, r):
    """floor(y + u), as `_cut` in torch."""
    whole = np.floor(y)
    up = y - whole >= MOST - np.float32(r) * np.float32(2**-16)
    return whole + (ONE if up else ZERO)


@njit
def round_brain(x, r, out):
    for j in range(x.size):
        bits = as_bits(x[j])
        rounded = (bits + np.int32(r[j])) & UPPER
        out[j] = as_float(QUIET_NAN if (bits & REST) > INFINITY else rounded)


@njit
def round_fixed(x, r, out, rule):
    for j in range(x.size):
        inside = min(max(x[j], rule.low), rule.high)
        rounded = cut(inside * rule.per_gap, r[j]) * rule.gap
        out[j] = rounded if x[j] == x[j] else NAN


@njit
def round_float(x, r, out, rule):
    for j in range(x.size):
        bits = as_bits(x[j])
        field = max((bits >> 23) & 0xFF, rule.least)
        gap, per_gap = as_float((field - rule.mantissa) << 23), as_float((254 + rule.mantissa - field) << 23)
        size = cut(abs(x[j]) * per_gap, r[j]) * gap
        size = rule.beyond if size > rule.high else size
        out[j] = as_float(as_bits(size) | (bits & SIGN)) if x[j] == x[j] else NAN


@njit
def round_block(x, r, out, rule):
    if rule.kind == BRAIN:
        round_brain(x, r, out)
    elif rule.kind == FIXED:
        round_fixed(x, r, out, rule)
    else:
        round_float(x, r, out, rule)


@njit
def store(values, out, rule):
    """Rounded values as the format keeps them: the upper half of the word, or the integers of fixed point."""
    for j in range(values.size):
        if rule.kind == BRAIN:
            out[j] = np.int16(as_bits(values[j]) >> 16)
        else:
            out[j] = np.int16(values[j] * rule.per_gap) if values[j] == values[j] else np.int16(0)


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
    random = words.view(np.uint16)
    for block in range(first, last):
        begin = block * BLOCK - skip
        low, high = max(begin, 0), min(begin + BLOCK, x.size)
        fill(words, call + np.uint64(block * CALLS), k0, k1)
        round_block(x[low:high], random[low - begin :], out[low:high], rule)


@compiled
def store_blocks(x, out, rule, first, last, skip, call, k0, k1):
    """As `round_blocks`, where `out` keeps what the format stores."""
    words, values = np.empty(2 * CALLS, np.uint64), np.empty(BLOCK, np.float32)
    random = words.view(np.uint16)
    for block in range(first, last):
        begin = block * BLOCK - skip
        low, high = max(begin, 0), min(begin + BLOCK, x.size)
        fill(words, call + np.uint64(block * CALLS), k0, k1)
        rounded = values[: high - low]
        round_block(x[low:high], random[low - begin :], rounded, rule)
        store(rounded, out[low:high], rule)


@compiled
def sgd_blocks(w, g, v, rule, lr, momentum, first, last, skip, call, k0, k1):
    """The step of `hpcdl.numerics.rounding.sgd_step` on these blocks."""
    words, values = np.empty(2 * CALLS, np.uint64), np.empty(BLOCK, np.float32)
    random = words.view(np.uint16)
    for block in range(first, last):
        begin = block * BLOCK - skip
        low, high = max(begin, 0), min(begin + BLOCK, w.size)
        fill(words, call + np.uint64(block * CALLS), k0, k1)
        updated = values[: high - low]
        descend(w[low:high], g[low:high], v[low:high], updated, rule, lr, momentum)
        round_block(updated, random[low - begin :], updated, rule)
        store(updated, w[low:high], rule)


# -- on all -----------------------------------------------------------------------------------------------------------


def round_into(x: torch.Tensor, out: torch.Tensor, fmt: Format, seed: int, offset: int) -> None:
    """`hpcdl.numerics.rounding.stochastic.round_into`, by as many threads as torch uses."""
    rule = rule_of(fmt)
    if out.dtype == torch.float32:
        blocks, arrays = round_blocks, (x.numpy(), out.numpy())
    else:
        blocks, arrays = store_blocks, (x.numpy(), out.view(torch.int16).numpy())
    in_threads(lambda *place: blocks(*arrays, rule, *place), x.numel(), seed, offset)


def sgd_into(w, g, v, fmt: Format, lr: float, momentum: float, seed: int, offset: int) -> None:
    """`hpcdl.numerics.rounding.sgd.sgd_into`, by as many threads as torch uses."""
    arrays = w.view(torch.int16).numpy(), g.numpy(), v.numpy()
    constants = rule_of(fmt), np.float32(lr), np.float32(momentum)
    in_threads(lambda *place: sgd_blocks(*arrays, *constants, *place), w.numel(), seed, offset)


def in_threads(work: Callable, n: int, seed: int, offset: int) -> None:
    """Call `work(first, last, skip, call, k0, k1)` for rows of the blocks of n elements, a thread for each row.

    Threads of our own, not Numba's: those are lost in a forked process, and clash with the OpenMP of torch.
    """
    call, skip = divmod(offset, PER_CALL)
    key = np.uint64(call), np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    blocks = -(-(skip + n) // BLOCK)
    rows = max(1, min(torch.get_num_threads(), blocks // 16))
    ends = [blocks * row // rows for row in range(rows + 1)]
    threads = [threading.Thread(target=work, args=(*ends[i : i + 2], skip, *key)) for i in range(1, rows)]
    for thread in threads:
        thread.start()
    work(*ends[:2], skip, *key)
    for thread in threads:
        thread.join()
