"""What a GPU kernel for stochastic rounding looks like at first: a call of Philox for each element."""

import torch

from hpcdl.kernels.gpu.base import bits, tl, triton

BLOCK = 1024


@triton.jit
def one_call_kernel(x, out, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r = tl.randint(seed, i).to(tl.uint32, bitcast=True) & 0xFFFF
    v = tl.load(x + i, i < n)
    rounded = ((v.to(tl.uint32, bitcast=True) + r) >> 16).to(tl.uint16)
    tl.store(out + i, tl.where(v == v, rounded, 0x7FC0).to(tl.uint16).to(out.dtype.element_ty, bitcast=True), i < n)


def one_call_per_element(x: torch.Tensor, out: torch.Tensor, seed: int = 1) -> None:
    """Float32 `x` rounded to bfloat16 `out`, flat; unbiased, with other random bits than hpcdl's."""
    one_call_kernel[triton.cdiv(x.numel(), BLOCK),](x, bits(out), x.numel(), seed, BLOCK=BLOCK)
