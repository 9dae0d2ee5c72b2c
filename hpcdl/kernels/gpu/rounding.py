"""Stochastic rounding on a GPU, in Triton: bit for bit what `hpcdl.numerics.rounding` does on the CPU.

A thread calls Philox once for eight neighbouring elements, and loads and stores them 16 bytes at a time: one call per
element would cost four times the instructions, and the kernel would wait for arithmetic instead of memory.
"""

from itertools import chain

import torch

from hpcdl.kernels.ahead_of_time import Build
from hpcdl.kernels.gpu.base import bits, tl, triton, widen
from hpcdl.numerics.rounding.formats import Fixed, Format
from hpcdl.numerics.rounding.philox import MULTIPLIERS, PER_CALL, round_keys
from hpcdl.numerics.rounding.philox import ROUNDS as ROUNDS_OF_PHILOX
from hpcdl.numerics.rounding.plain import HALF_BELOW

BLOCK = 4096  # elements of a program: 32 for each of 128 threads, so that what a thread does once costs little
STRETCH = PER_CALL << 32  # elements until the upper word of Philox's counter changes
M0, M1 = (tl.constexpr(m) for m in MULTIPLIERS)
ROUNDS = tl.constexpr(ROUNDS_OF_PHILOX)
U32 = tl.uint32
# The key words a and b of each round come from the host: here each would take an addition. One compiled kernel serves
# all of these numbers, whether or not 16 divides them.
PLAIN = ["call", "above", *(f"{name}{i}" for i in range(ROUNDS_OF_PHILOX) for name in "ab")]
HALF = tl.constexpr(HALF_BELOW)
ANCHOR = tl.constexpr(1.5 * 2**23)  # a float that counts in ones: an integer added to its word is added to it
ANCHOR_WORD = tl.constexpr(0x4B400000)


@triton.jit
def halves(c, FACTOR: tl.constexpr, APART: tl.constexpr):
    """The upper and the lower word of a product: both by one instruction, or APART, by two."""
    if APART:
        return tl.umulhi(c, FACTOR), c * FACTOR
    else:
        product = c.to(tl.uint64) * FACTOR
        return (product >> 32).to(tl.uint32), product.to(tl.uint32)


@triton.jit
def philox(keys, c0, c1):
    """The four words of each counter (c0, c1, 0, 0), with two of `keys` for each round."""
    c2 = c1 * 0
    c3 = c2
    for i in tl.static_range(ROUNDS):
        # Some apart: or LLVM pairs products of different rounds as vectors, and then takes most of them apart.
        high0, low0 = halves(c0, M0, i == 4)
        high1, low1 = halves(c2, M1, i % 4 == 0)
        c0, c1 = high1 ^ c1 ^ keys[2 * i].to(tl.uint32), low1
        c2, c3 = high0 ^ c3 ^ keys[2 * i + 1].to(tl.uint32), low0
    return c0, c1, c2, c3


@triton.jit
def random_bits(keys, call, above, program, BLOCK: tl.constexpr):
    """The random bits of a program's elements: each has the 16 that are its own first, and then its neighbour's.

    All its counters have one upper word (see `launches`).
    """
    first = tl.cast(call, tl.uint32) + program.to(tl.uint32) * (BLOCK // 8)
    c0 = first + tl.arange(0, BLOCK // 8).to(tl.uint32)
    w0, w1, w2, w3 = philox(keys, c0, tl.cast(above, tl.uint32))
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))  # [call, a, b] is word 2a + b
    return tl.reshape(tl.join((words << 16) | (words >> 16), words), [BLOCK])


@triton.jit
def nearest(y, dtype: tl.constexpr):
    """The integer nearest to `y`, which random bits are added to, as in `_round_fixed` in torch."""
    return tl.floor(y + HALF).to(dtype)


@triton.jit
def drawn(r):
    """The first 16 random bits, as an integer."""
    return (r >> 16).to(tl.int32)


@triton.jit
def round_fixed(x, r, LOW: tl.constexpr, HIGH: tl.constexpr, GAP: tl.constexpr, dtype: tl.constexpr):
    inside = tl.minimum(x, HIGH)
    if LOW != -32768 * GAP:  # with 16 random bits such a word is an int32, and what lies below becomes the least one
        inside = tl.maximum(inside, LOW)
    inside *= 65536 / GAP
    if dtype != tl.float32:
        word = tl.where(x == x, nearest(inside, tl.int32), 0) + drawn(r)
        return (word >> 16).to(dtype)
    else:
        LONG: tl.constexpr = HIGH > 32768 * GAP  # than 16 bits is the word, so that with 16 more it takes 64
        word = (nearest(inside, tl.int64 if LONG else tl.int32) + drawn(r)) >> 16
        return tl.where(x == x, scaled_long(word, GAP) if LONG else scaled(word, GAP), float("nan"))


@triton.jit
def scaled_long(word, GAP: tl.constexpr):
    return word.to(tl.float32) * GAP


@triton.jit
def scaled(word, GAP: tl.constexpr):
    """As `scaled_long` for words of up to 23 bits; compiled, an instruction less."""
    return (word + ANCHOR_WORD).to(tl.float32, bitcast=True) * GAP - ANCHOR * GAP


@triton.jit
def round_float(x, r, HIGH: tl.constexpr, LOST: tl.constexpr, LEAST: tl.constexpr, SATURATES: tl.constexpr):
    """Made so small that the format's subnormal numbers are float32's, x has the same bits too many everywhere."""
    DOWN: tl.constexpr = 2.0 ** (1 - LEAST)
    UP: tl.constexpr = 2.0 ** (LEAST - 1)
    if SATURATES:
        size = cut(tl.minimum(tl.abs(x), HIGH) * DOWN, r, LOST) * UP
        word = size.to(tl.int32, bitcast=True) | (x.to(tl.int32, bitcast=True) & -2147483648)
        rounded = word.to(tl.float32, bitcast=True)
    else:
        rounded = cut(x * DOWN, r, LOST) * UP * UP * DOWN  # what follows HIGH becomes 2^128, which is infinite
    return tl.where(x == x, rounded, float("nan"))


@triton.jit
def cut(x, r, LOST: tl.constexpr):
    """The last bits of a float32 cut off, after random ones were added to them: by `umulhi`, since LLVM makes two
    instructions of the shift."""
    word = x.to(tl.int32, bitcast=True) + tl.umulhi(r, 1 << LOST).to(tl.int32)
    return (word & -(1 << LOST)).to(tl.float32, bitcast=True)


@triton.jit
def round_block(
    x, r, FIXED: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, GAP: tl.constexpr, LOST: tl.constexpr,
    LEAST: tl.constexpr, SATURATES: tl.constexpr, dtype: tl.constexpr
):  # fmt: skip
    """Float32 `x` rounded with random bits `r`, as float32 or as the format stores it: the rules of
    `hpcdl.kernels.cpu.rounding`.
    """
    if FIXED:
        return round_fixed(x, r, LOW, HIGH, GAP, dtype)
    rounded = round_float(x, r, HIGH, LOST, LEAST, SATURATES)
    if dtype == tl.float32:
        return rounded
    else:
        return (rounded.to(tl.int32, bitcast=True) >> 16).to(tl.int16).to(dtype, bitcast=True)


@triton.jit(do_not_specialize=PLAIN)
def round_kernel(
    x, out, n, skip, call: U32, above: U32, a0: U32, b0: U32, a1: U32, b1: U32, a2: U32, b2: U32, a3: U32, b3: U32,
    a4: U32, b4: U32, a5: U32, b5: U32, a6: U32, b6: U32, a7: U32, b7: U32, a8: U32, b8: U32, a9: U32, b9: U32,
    FIXED: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, GAP: tl.constexpr, LOST: tl.constexpr,
    LEAST: tl.constexpr, SATURATES: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    """Element 0 is the one numbered `skip` in Philox's call (call, above). WHOLE: blocks are full and `skip` is 0."""
    program = tl.program_id(0).to(tl.int64)
    keys = (a0, b0, a1, b1, a2, b2, a3, b3, a4, b4, a5, b5, a6, b6, a7, b7, a8, b8, a9, b9)
    r = random_bits(keys, call, above, program, BLOCK)
    start = program * BLOCK if WHOLE else program * BLOCK - skip
    j = tl.arange(0, BLOCK)
    inside = None if WHOLE else (start + j >= 0) & (start + j < n)
    v = tl.load(x + start + j, inside)
    v = round_block(v, r, FIXED, LOW, HIGH, GAP, LOST, LEAST, SATURATES, out.dtype.element_ty)
    tl.store(out + start + j, v, inside)


@triton.jit(do_not_specialize=PLAIN)
def sgd_kernel(
    w, g, v, n, lr, momentum, skip, call: U32, above: U32,
    a0: U32, b0: U32, a1: U32, b1: U32, a2: U32, b2: U32, a3: U32, b3: U32,
    a4: U32, b4: U32, a5: U32, b5: U32, a6: U32, b6: U32, a7: U32, b7: U32, a8: U32, b8: U32, a9: U32, b9: U32,
    FIXED: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, GAP: tl.constexpr, LOST: tl.constexpr,
    LEAST: tl.constexpr, SATURATES: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    """v <- momentum v + g, w <- R(w - lr v) for stored `w`; places as in `round_kernel`."""
    program = tl.program_id(0).to(tl.int64)
    keys = (a0, b0, a1, b1, a2, b2, a3, b3, a4, b4, a5, b5, a6, b6, a7, b7, a8, b8, a9, b9)
    r = random_bits(keys, call, above, program, BLOCK)
    start = program * BLOCK if WHOLE else program * BLOCK - skip
    j = tl.arange(0, BLOCK)
    inside = None if WHOLE else (start + j >= 0) & (start + j < n)
    velocity = tl.load(v + start + j, inside) * momentum + tl.load(g + start + j, inside)
    words = tl.load(w + start + j, inside)
    weights = words.to(tl.float32) * GAP if FIXED else widen(words)
    updated = weights - velocity * lr
    updated = round_block(updated, r, FIXED, LOW, HIGH, GAP, LOST, LEAST, SATURATES, w.dtype.element_ty)
    tl.store(v + start + j, velocity, inside)
    tl.store(w + start + j, updated, inside)


def constants(fmt: Format) -> dict:
    """A format in the numbers that the kernels are compiled for."""
    shared = {"LOW": fmt.min, "HIGH": fmt.max, "BLOCK": BLOCK}
    if isinstance(fmt, Fixed):
        return shared | {"FIXED": True, "GAP": fmt.eps, "LOST": 0, "LEAST": 0, "SATURATES": True}
    least = fmt.min_exponent + 127  # as a field of float32
    floating = {"FIXED": False, "GAP": 1.0, "LOST": fmt.random_bits, "LEAST": least}
    return shared | floating | {"SATURATES": not fmt.has_infinity}


def round_into(x: torch.Tensor, out: torch.Tensor, fmt: Format, seed: int, offset: int) -> None:
    """`hpcdl.numerics.rounding.plain.round_into` on a GPU, or in Triton's interpreter."""
    keys = tuple(chain.from_iterable(round_keys(seed)))
    for start, stop, grid, whole in launches(x.numel(), offset):
        arguments = x[start:stop], bits(out[start:stop]), stop - start, *place(offset + start), *keys
        round_kernel[grid,](*arguments, **constants(fmt), WHOLE=whole)


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
    """`hpcdl.numerics.rounding.sgd.sgd_into` on a GPU; products and sums are not fused, as on the CPU."""
    keys = tuple(chain.from_iterable(round_keys(seed)))
    for start, stop, grid, whole in launches(w.numel(), offset):
        w_, g_, v_ = (tensor[start:stop] for tensor in (w, g, v))
        arguments = bits(w_), g_, v_, stop - start, float(lr), float(momentum), *place(offset + start), *keys
        sgd_kernel[grid,](*arguments, **constants(fmt), WHOLE=whole, enable_fp_fusion=False)


def place(p: int) -> tuple[int, int, int]:
    """An element's number within its call of Philox, and the two words of that call's counter."""
    call, skip = divmod(p, PER_CALL)
    return skip, call & 0xFFFFFFFF, call >> 32


def on_whole_blocks(fmt: Format, out: str, target: str) -> Build:
    """What nearly all of a large tensor is rounded by: `round_kernel` for an `out` of a type such as "*fp32:16"."""
    types = {"x": "*fp32:16", "out": out, "n": "i32:16", "skip": "i32:16"} | dict.fromkeys(PLAIN, "u32")
    return Build(f"{__name__}:round_kernel", types, constants(fmt) | {"WHOLE": True}, target)


def launches(n: int, offset: int):
    """`(start, stop, programs, whole)` of each launch: full blocks need no masks, and so get wide loads.

    None crosses a multiple of `STRETCH`: the upper word of the counter is the same for all of a launch, and what Philox
    makes of it alone is computed once.
    """
    start = 0
    while start < n:
        stop = min(n, start + STRETCH - (offset + start) % STRETCH)
        skip = (offset + start) % PER_CALL
        full = start if skip else stop - (stop - start) % BLOCK
        if full > start:
            yield start, full, (full - start) // BLOCK, True
        if stop > full:
            yield full, stop, triton.cdiv(skip + stop - full, BLOCK), False
        start = stop
