"""Stochastic rounding on a GPU, in Triton: bit for bit what `hpcdl.numerics.rounding` does on the CPU.

A thread calls Philox once for eight neighbouring elements, and loads and stores them 16 bytes at a time: one call per
element would cost four times the instructions, and the kernel would wait for arithmetic instead of memory.
"""

import torch

from hpcdl.kernels.gpu import bits, tl, triton, widen
from hpcdl.numerics.rounding.formats import Fixed, Format
from hpcdl.numerics.rounding.philox import PER_CALL

BLOCK = 2048  # elements of a program: 16 for each of 128 threads
BRAIN, FIXED, FLOAT = (tl.constexpr(kind) for kind in range(3))


@triton.jit
def random_bits(seed, call, BLOCK: tl.constexpr):
    """The 16 random bits of BLOCK elements, int32, from number `call` of Philox on."""
    w0, w1, w2, w3 = tl.randint4x(seed, call + tl.arange(0, BLOCK // 8))
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))  # [call, a, b] is word 2a + b
    return tl.reshape(tl.join(words & 0xFFFF, words >> 16), [BLOCK]).to(tl.int32)


@triton.jit
def cut(y, r):
    """floor(y + u), as `_cut` in torch."""
    whole = tl.floor(y)
    return whole + tl.where(y - whole >= 0.99999237060546875 - r.to(tl.float32) * 0.0000152587890625, 1.0, 0.0)


@triton.jit
def round_block(
    x, r, KIND: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, GAP: tl.constexpr, MANTISSA: tl.constexpr,
    LEAST: tl.constexpr, SATURATES: tl.constexpr
):  # fmt: skip
    """Float32 `x` rounded with random bits `r`: the three rules of `rounding_cpu`."""
    u = x.to(tl.int32, bitcast=True)
    if KIND == BRAIN:
        rounded = ((u + r) & -65536).to(tl.float32, bitcast=True)
    elif KIND == FIXED:
        rounded = cut(tl.minimum(tl.maximum(x, LOW), HIGH) * (1 / GAP), r) * GAP
    else:
        field = tl.maximum((u >> 23) & 0xFF, LEAST)
        per_gap = ((254 + MANTISSA - field) << 23).to(tl.float32, bitcast=True)
        size = cut(tl.abs(x) * per_gap, r) * ((field - MANTISSA) << 23).to(tl.float32, bitcast=True)
        size = tl.where(size > HIGH, HIGH if SATURATES else float("inf"), size)
        rounded = (size.to(tl.int32, bitcast=True) | (u & -2147483648)).to(tl.float32, bitcast=True)
    return tl.where(x == x, rounded, float("nan"))


@triton.jit
def stored(values, KIND: tl.constexpr, GAP: tl.constexpr, dtype: tl.constexpr):
    """Rounded values as `dtype` keeps them: float32, the upper half of its word, or the integers of fixed point."""
    if dtype == tl.float32:
        return values
    elif KIND == BRAIN:
        return (values.to(tl.uint32, bitcast=True) >> 16).to(tl.uint16).to(dtype, bitcast=True)
    else:
        return tl.where(values == values, values * (1 / GAP), 0.0).to(dtype)


@triton.jit
def round_kernel(
    x, out, n, seed, call, skip, KIND: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, GAP: tl.constexpr,
    MANTISSA: tl.constexpr, LEAST: tl.constexpr, SATURATES: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    """Element 0 is the one numbered `skip` in number `call` of Philox. WHOLE: blocks are full and `skip` is 0."""
    program = tl.program_id(0).to(tl.int64)
    r = random_bits(seed, call + program * (BLOCK // 8), BLOCK)
    start = program * BLOCK if WHOLE else program * BLOCK - skip
    j = tl.arange(0, BLOCK)
    inside = None if WHOLE else (start + j >= 0) & (start + j < n)
    v = tl.load(x + start + j, inside)
    v = round_block(v, r, KIND, LOW, HIGH, GAP, MANTISSA, LEAST, SATURATES)
    tl.store(out + start + j, stored(v, KIND, GAP, out.dtype.element_ty), inside)


@triton.jit
def sgd_kernel(
    w, g, v, n, lr, momentum, seed, call, skip, KIND: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    GAP: tl.constexpr, MANTISSA: tl.constexpr, LEAST: tl.constexpr, SATURATES: tl.constexpr, BLOCK: tl.constexpr,
    WHOLE: tl.constexpr
):  # fmt: skip
    """v <- momentum v + g, w <- R(w - lr v) for stored `w`; places as in `round_kernel`."""
    program = tl.program_id(0).to(tl.int64)
    r = random_bits(seed, call + program * (BLOCK // 8), BLOCK)
    start = program * BLOCK if WHOLE else program * BLOCK - skip
    j = tl.arange(0, BLOCK)
    inside = None if WHOLE else (start + j >= 0) & (start + j < n)
    velocity = tl.load(v + start + j, inside) * momentum + tl.load(g + start + j, inside)
    words = tl.load(w + start + j, inside)
    weights = widen(words) if KIND == BRAIN else words.to(tl.float32) * GAP
    updated = round_block(weights - velocity * lr, r, KIND, LOW, HIGH, GAP, MANTISSA, LEAST, SATURATES)
    tl.store(v + start + j, velocity, inside)
    tl.store(w + start + j, stored(updated, KIND, GAP, w.dtype.element_ty), inside)


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
    for part, start, grid, whole in launches(x.numel(), offset):
        call, skip = divmod(offset + start, PER_CALL)
        stop = start + part
        arguments = x[start:stop], bits(out[start:stop]), part, seed, call, skip
        round_kernel[grid,](*arguments, **constants(fmt), WHOLE=whole)


def sgd_into(w, g, v, fmt: Format, lr: float, momentum: float, seed: int, offset: int) -> None:
    """`hpcdl.numerics.rounding.sgd.sgd_into` on a GPU; products and sums are not fused, as on the CPU."""
    for part, start, grid, whole in launches(w.numel(), offset):
        call, skip = divmod(offset + start, PER_CALL)
        w_, g_, v_ = (tensor[start : start + part] for tensor in (w, g, v))
        arguments = bits(w_), g_, v_, part, float(lr), float(momentum), seed, call, skip
        sgd_kernel[grid,](*arguments, **constants(fmt), WHOLE=whole, enable_fp_fusion=False)


def launches(n: int, offset: int):
    """`(elements, start, programs, whole)` of each launch: full blocks need no masks, and so get wide loads."""
    skip = offset % PER_CALL
    full = 0 if skip else n // BLOCK
    if full:
        yield full * BLOCK, 0, full, True
    if rest := n - full * BLOCK:
        yield rest, full * BLOCK, triton.cdiv(skip + rest, BLOCK), False
