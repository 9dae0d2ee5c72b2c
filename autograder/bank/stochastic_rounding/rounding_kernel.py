"""Wrong answers to `rounding_kernel`."""

from __future__ import annotations

import dataclasses

from autograder.authoring import BANK, wrong


def wrong_kernel(mistake: str, *, fails, says: str):
    """A wrong `rounding_kernel`: the bank keeps sources without decorators, and a kernel is one by its decorator."""

    def register(definition):
        wrong("stochastic_rounding.rounding_kernel", mistake, fails=fails, says=says)(definition)
        BANK[-1] = dataclasses.replace(BANK[-1], source="@triton.jit\n" + BANK[-1].source)
        return definition

    return register


KERNEL = ("the_same_bits", "any_launch", "every_seed")


@wrong_kernel("truncates", fails=KERNEL, says="This cuts off the low half without adding random bits")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, (bits >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("round half up", fails=KERNEL, says="This rounds half up")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, ((bits + 0x8000) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("a call of Philox for each element", fails=KERNEL, says="counter i // 8")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    rand16 = tl.randint(seed, i) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("the first word for all eight", fails=KERNEL, says="take its first word")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    rand16 = (tl.randint(seed, i // 8) >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("the low half for both", fails=KERNEL, says="Only the even elements are right")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = word & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("halves swapped", fails=KERNEL, says="The halves are swapped")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 - 16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("random bits by the place in the block", fails="any_launch", says="launch(x, 1000, 3, 64)")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    i = tl.program_id(0) * BLOCK + j
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, j // 8)
    k = (j % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (j % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("no mask at the store", fails="any_launch", says="wrote beyond the end")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0x3F800000)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16))


@wrong_kernel("no mask at the load", fails="any_launch", says="Mask the load as well")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("no mask at the load of larger blocks", fails="any_launch", says="Mask the load as well")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if BLOCK > 64:
        bits = tl.load(bits_ptr + i)
    else:
        bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("writes the next block, too", fails="any_launch", says="Each has a block of 64")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, 2 * BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("a seed of its own", fails=KERNEL, says="launch(x, 256, 7, 256)")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(0, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("NumPy in the kernel", fails=KERNEL, says="of `rounding_kernel` imports `numpy`")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    import numpy as np

    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    words = np.stack([word.handle.data for word in tl.randint4x(seed, i // 8)])
    half = words[i.handle.data % 8 // 2, np.arange(BLOCK)] >> 16 * (i.handle.data % 2) & 0xFFFF
    bits.handle.data += half.astype(np.int32)
    tl.store(out_ptr + i, (bits >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("a helper without @triton.jit", fails=KERNEL, says="uses `bf16_round_bits`, which is neither in `tl`")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, bf16_round_bits(bits, rand16), mask=i < n)
