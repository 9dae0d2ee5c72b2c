"""Philox on the CPU, compiled by Numba: the words of `hpcdl.numerics.rounding.philox`, eight calls to a vector.

A vector of eight 64-bit numbers is one register of AVX-512; where registers are shorter, LLVM takes two or four.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from hpcdl.kernels.cpu.vectors import prefetch, splat, store
from hpcdl.numerics.rounding.philox import KEY_STEPS, MULTIPLIERS, PER_CALL, ROUNDS, WORD

CALLS = 256  # for one block of elements
BLOCK = CALLS * PER_CALL
AT_ONCE = 8
LINE = 64  # bytes of a cache line
NUMBER = ir.IntType(64)
VECTOR = ir.VectorType(NUMBER, AT_ONCE)
EIGHT, SHARE = np.uint64(AT_ONCE), CALLS // AT_ONCE


def every(*numbers: int) -> ir.Constant:
    """A vector that repeats these numbers."""
    return ir.Constant(VECTOR, list(numbers) * (AT_ONCE // len(numbers)))


@intrinsic
def eight_calls(typingctx, address, call, k0, k1):
    """The words of the calls numbered `call` to `call + 7`, two in each of 16 uint64 from `address` on."""

    def build(context, builder, signature, arguments):
        address, *scalars = arguments
        counters, a, b = (splat(builder, scalar, VECTOR) for scalar in scalars)
        c0 = builder.add(counters, every(*range(AT_ONCE)))
        words = rounds(builder, [c0, builder.lshr(c0, every(32)), every(0), every(0)], a, b)
        for half, pairs in enumerate(interleaved(builder, *words)):
            store(builder, pairs, builder.add(address, ir.Constant(NUMBER, 64 * half)))
        return context.get_dummy_value()

    return types.void(types.intp, types.uint64, types.uint64, types.uint64), build


def rounds(builder, words, a, b):
    """Ten rounds on vectors that keep a word in the lower halves of their numbers; what the upper ones hold is dirt."""
    c0, c1, c2, c3 = words
    for _ in range(ROUNDS):
        p0, p1 = (
            builder.mul(builder.and_(c, every(WORD)), every(m)) for c, m in zip((c0, c2), MULTIPLIERS, strict=True)
        )
        h0, h1 = (builder.lshr(p, every(32)) for p in (p0, p1))
        c0, c1 = builder.xor(builder.xor(h1, c1), a), p1
        c2, c3 = builder.xor(builder.xor(h0, c3), b), p0
        a, b = (builder.add(k, every(step)) for k, step in zip((a, b), KEY_STEPS, strict=True))
    return c0, c1, c2, c3


def interleaved(builder, c0, c1, c2, c3):
    """(c0, c1, c2, c3) of one call after the other: two vectors of pairs of words."""
    low, high = (
        builder.or_(builder.and_(even, every(WORD)), builder.shl(odd, every(32))) for even, odd in ((c0, c1), (c2, c3))
    )
    for first in (0, AT_ONCE // 2):
        places = [first + i // 2 + AT_ONCE * (i % 2) for i in range(AT_ONCE)]
        yield builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(ir.IntType(32), AT_ONCE), places))


@njit
def fill(words, call, k0, k1, soon):
    """The words of a block's calls from number `call` on, two in each uint64.

    Meanwhile memory fetches what the next block needs: `soon` has pairs of an address and a number of bytes.
    """
    for part in range(SHARE):
        for address, size in soon:
            for line in range(address + part * size // SHARE, address + (part + 1) * size // SHARE, LINE):
                prefetch(line)
        eight_calls(words.ctypes.data + 128 * part, call + EIGHT * np.uint64(part), k0, k1)


@njit
def after(x, place):
    """Address and bytes of a block of x from `place` on; it may lie beyond the end, since nothing there is read."""
    return x.ctypes.data + place * x.itemsize, BLOCK * x.itemsize
