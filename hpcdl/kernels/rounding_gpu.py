"""Stochastic rounding on a GPU, in Triton: bit for bit what `hpcdl.numerics.rounding` does on the CPU.

A thread calls Philox once for eight neighbouring elements, and loads and stores them 16 bytes at a time: one call per
element would cost four times the instructions, and the kernel would wait for arithmetic instead of memory.
"""

import torch

from hpcdl.kernels.gpu import bits, tl, triton, widen
from hpcdl.numerics.rounding.formats import Fixed, Format
from hpcdl.numerics.rounding.philox import KEY_STEPS, MULTIPLIERS, PER_CALL
from hpcdl.numerics.rounding.philox import ROUNDS as ROUNDS_OF_PHILOX
from hpcdl.numerics.rounding.stochastic import HALF_BELOW

BLOCK = 4096  # elements of a program: 32 for each of 128 threads, who so share the work of the round keys
STRETCH = PER_CALL << 32  # elements between two of which the upper word of Philox's counter changes
BRAIN, FIXED, FLOAT = (tl.constexpr(kind) for kind in range(3))
M0, M1, STEP0, STEP1 = (tl.constexpr(c) for c in (*MULTIPLIERS, *KEY_STEPS))
ROUNDS = tl.constexpr(ROUNDS_OF_PHILOX)
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
def philox(seed, c0, c1):
    """The four words of each counter (c0, c1, 0, 0)."""
    k0, k1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    c2 = c1 * 0
    c3 = c2
    for i in tl.static_range(ROUNDS):
        # One round apart: or LLVM pairs products of different rounds as vectors, and then takes most of them apart.
        high0, low0 = halves(c0, M0, i == ROUNDS // 2)
        high1, low1 = halves(c2, M1, i == ROUNDS // 2)
        c0, c1 = high1 ^ c1 ^ k0, low1
        c2, c3 = high0 ^ c3 ^ k1, low0
        k0 = tl.add(k0, STEP0, sanitize_overflow=False)
        k1 = tl.add(k1, STEP1, sanitize_overflow=False)
    return c0, c1, c2, c3


@triton.jit
def random_bits(seed, call, program, BLOCK: tl.constexpr):
    """The random bits of a program's elements, in the upper half of uint32, so that they count in 2^-16 of a gap.

    All its counters have one upper word (see `launches`).
    """
    call = tl.to_tensor(call).to(tl.uint64)
    first = call.to(tl.uint32) + program.to(tl.uint32) * (BLOCK // 8)
    c0 = first + tl.arange(0, BLOCK // 8).to(tl.uint32)
    w0, w1, w2, w3 = philox(tl.to_tensor(seed).to(tl.uint64), c0, (call >> 32).to(tl.uint32))
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))  # [call, a, b] is word 2a + b
    return tl.reshape(tl.join(words << 16, words & 0xFFFF0000), [BLOCK])


@triton.jit
def nearest(y, dtype: tl.constexpr):
    """The integer nearest to `y`, which random bits are added to, as in `_cut` in torch."""
    return tl.floor(y + HALF).to(dtype)


@triton.jit
def drawn(r):
    """Random bits as integers from 0 to 65535."""
    return (r >> 16).to(tl.int32)


@triton.jit
def round_brain(x, r, dtype: tl.constexpr):
    word = tl.where(x == x, x.to(tl.int32, bitcast=True) + drawn(r), 0x7FC00000)
    if dtype == tl.float32:
        return (word & -65536).to(tl.float32, bitcast=True)
    else:
        return (word >> 16).to(tl.int16).to(dtype, bitcast=True)


@triton.jit
def round_fixed(x, r, LOW: tl.constexpr, HIGH: tl.constexpr, GAP: tl.constexpr, dtype: tl.constexpr):
    inside = tl.minimum(tl.maximum(x, LOW), HIGH) * (65536 / GAP)
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
def cut_few(size, power, r, MANTISSA: tl.constexpr):
    """q floor((n + r) / 2^16) for `size` in [0, 2^(E+1)) and the gap q = 2^(E - MANTISSA), `power` being 2^E's word.

    In the sum with 2^(E+1) a gap has 2^(16 + SHIFT) parts, SHIFT > 0: so the word of the sum takes r and the half that
    n is rounded up with. What is added lies half a part lower, lest rounding the sum should lift it over such a half.
    """
    SHIFT: tl.constexpr = 6 - MANTISSA
    word = (size + (power | 0x7FFFFF).to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    word += tl.umulhi(r | 0x8000, 1 << (16 + SHIFT)).to(tl.int32)  # a shift would be taken apart, at more instructions
    return (word & -(1 << (16 + SHIFT))).to(tl.float32, bitcast=True) - 2 * power.to(tl.float32, bitcast=True)


@triton.jit
def cut_many(size, power, r, MANTISSA: tl.constexpr):
    """As `cut_few`, where float32 has too few bits for such a sum."""
    parts = (((254 + 16 + MANTISSA) << 23) - power).to(tl.float32, bitcast=True)  # a gap has 65536 parts
    base = (power + ((23 - MANTISSA) << 23)).to(tl.int32, bitcast=True)  # of a float that counts in gaps
    word = base + ((nearest(size * parts, tl.int32) + drawn(r)) >> 16)
    return word.to(tl.float32, bitcast=True) - base.to(tl.float32, bitcast=True)


@triton.jit
def round_float(x, r, HIGH: tl.constexpr, MANTISSA: tl.constexpr, LEAST: tl.constexpr, SATURATES: tl.constexpr):
    size = tl.minimum(tl.abs(x), HIGH if SATURATES else 2 * HIGH)
    power = tl.maximum(size.to(tl.uint32, bitcast=True) & 0x7F800000, LEAST << 23)
    size = cut_few(size, power, r, MANTISSA) if MANTISSA < 6 else cut_many(size, power, r, MANTISSA)
    if not SATURATES:
        size = size * 2.0 ** (LEAST - 1) * 2.0 ** (1 - LEAST)  # what follows HIGH becomes 2^128, which is infinite
    rounded = size.to(tl.int32, bitcast=True) | (x.to(tl.int32, bitcast=True) & -2147483648)
    return tl.where(x == x, rounded.to(tl.float32, bitcast=True), float("nan"))


@triton.jit
def round_block(
    x, r, KIND: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, GAP: tl.constexpr, MANTISSA: tl.constexpr,
    LEAST: tl.constexpr, SATURATES: tl.constexpr, dtype: tl.constexpr
):  # fmt: skip
    """Float32 `x` rounded with random bits `r`, as float32 or as the format stores it: the rules of `rounding_cpu`."""
    if KIND == BRAIN:
        return round_brain(x, r, dtype)
    elif KIND == FIXED:
        return round_fixed(x, r, LOW, HIGH, GAP, dtype)
    else:
        return round_float(x, r, HIGH, MANTISSA, LEAST, SATURATES)


@triton.jit
def round_kernel(
    x, out, n, seed, call, skip, KIND: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, GAP: tl.constexpr,
    MANTISSA: tl.constexpr, LEAST: tl.constexpr, SATURATES: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    """Element 0 is the one numbered `skip` in number `call` of Philox. WHOLE: blocks are full and `skip` is 0."""
    program = tl.program_id(0).to(tl.int64)
    r = random_bits(seed, call, program, BLOCK)
    start = program * BLOCK if WHOLE else program * BLOCK - skip
    j = tl.arange(0, BLOCK)
    inside = None if WHOLE else (start + j >= 0) & (start + j < n)
    v = tl.load(x + start + j, inside)
    v = round_block(v, r, KIND, LOW, HIGH, GAP, MANTISSA, LEAST, SATURATES, out.dtype.element_ty)
    tl.store(out + start + j, v, inside)


@triton.jit
def sgd_kernel(
    w, g, v, n, lr, momentum, seed, call, skip, KIND: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    GAP: tl.constexpr, MANTISSA: tl.constexpr, LEAST: tl.constexpr, SATURATES: tl.constexpr, BLOCK: tl.constexpr,
    WHOLE: tl.constexpr
):  # fmt: skip
    """v <- momentum v + g, w <- R(w - lr v) for stored `w`; places as in `round_kernel`."""
    program = tl.program_id(0).to(tl.int64)
    r = random_bits(seed, call, program, BLOCK)
    start = program * BLOCK if WHOLE else program * BLOCK - skip
    j = tl.arange(0, BLOCK)
    inside = None if WHOLE else (start + j >= 0) & (start + j < n)
    velocity = tl.load(v + start + j, inside) * momentum + tl.load(g + start + j, inside)
    words = tl.load(w + start + j, inside)
    weights = widen(words) if KIND == BRAIN else words.to(tl.float32) * GAP
    updated = weights - velocity * lr
    updated = round_block(updated, r, KIND, LOW, HIGH, GAP, MANTISSA, LEAST, SATURATES, w.dtype.element_ty)
    tl.store(v + start + j, velocity, inside)
    tl.store(w + start + j, updated, inside)


def constants(fmt: Format) -> dict:
    """A format in the numbers that the kernels are compiled for."""
    shared = {"LOW": fmt.min, "HIGH": fmt.max, "BLOCK": BLOCK}
    if isinstance(fmt, Fixed):
        return shared | {"KIND": FIXED.value, "GAP": fmt.eps, "MANTISSA": 0, "LEAST": 0, "SATURATES": True}
    kind = BRAIN if fmt.exponent_bits == 8 else FLOAT
    fields = {"MANTISSA": fmt.mantissa_bits, "LEAST": fmt.min_exponent + 127, "SATURATES": not fmt.has_infinity}
    return shared | {"KIND": kind.value, "GAP": 1.0} | fields


def round_into(x: torch.Tensor, out: torch.Tensor, fmt: Format, seed: int, offset: int) -> None:
    """`hpcdl.numerics.rounding.stochastic.round_into` on a GPU, or in Triton's interpreter."""
    for start, stop, grid, whole in launches(x.numel(), offset):
        call, skip = divmod(offset + start, PER_CALL)
        arguments = x[start:stop], bits(out[start:stop]), stop - start, seed, call, skip
        round_kernel[grid,](*arguments, **constants(fmt), WHOLE=whole)


def sgd_into(w, g, v, fmt: Format, lr: float, momentum: float, seed: int, offset: int) -> None:
    """`hpcdl.numerics.rounding.sgd.sgd_into` on a GPU; products and sums are not fused, as on the CPU."""
    for start, stop, grid, whole in launches(w.numel(), offset):
        call, skip = divmod(offset + start, PER_CALL)
        w_, g_, v_ = (tensor[start:stop] for tensor in (w, g, v))
        arguments = bits(w_), g_, v_, stop - start, float(lr), float(momentum), seed, call, skip
        sgd_kernel[grid,](*arguments, **constants(fmt), WHOLE=whole, enable_fp_fusion=False)


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
