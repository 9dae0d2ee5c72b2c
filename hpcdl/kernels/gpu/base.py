"""What every Triton kernel here needs: Triton or words that say how to get it, a place to run, and bfloat16 as bits.

Triton's interpreter runs kernels on the CPU, slowly, when TRITON_INTERPRET=1 is set before they are imported. It takes
bfloat16 for the integers that it is stored as: so there tensors of bfloat16 go in as uint16 (`bits`), and kernels that
compute convert at their edges (`widen`, `narrow`). Torch's optimizers import Triton; a program that did so before the
interpreter was chosen has `tl.zeros` and `tl.cdiv` for compiled kernels only: kernels here do without them.
"""

import torch

from hpcdl.kernels.advice import NO_TRITON

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(NO_TRITON) from error

from hpcdl.kernels.interpreter import patch

INTERPRETED = triton.knobs.runtime.interpret
if INTERPRETED:
    patch()


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """`x` (N, C, H, W) with its channels side by side in memory and no gaps: itself where it is so already."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def empty_channels_last(x: torch.Tensor, n: int, channels: int, h: int, w: int) -> torch.Tensor:
    """An (n, channels, h, w) tensor of the type and device of `x`, channels side by side in memory."""
    return x.new_empty(n, h, w, channels).permute(0, 3, 1, 2)


def bits(x: torch.Tensor) -> torch.Tensor:
    """`x` as a kernel may have it: under the interpreter bfloat16 becomes the uint16 that it is stored as."""
    return x.view(torch.uint16) if INTERPRETED and x.dtype == torch.bfloat16 else x


@triton.jit
def widen(v):
    """Return loaded values as float32; uint16 are the upper halves of such numbers."""
    if v.dtype == tl.uint16:
        return (v.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        return v.to(tl.float32)


@triton.jit
def operand(v):
    """Return loaded values in the form for a matrix product: unchanged, except for bfloat16's bits."""
    if v.dtype == tl.uint16:
        return widen(v)
    else:
        return v


@triton.jit
def narrow(v, dtype: tl.constexpr):
    """Float32 values as they are stored in `dtype`: the nearest, ties to even; uint16 stands for bfloat16."""
    if dtype == tl.uint16:
        u = v.to(tl.uint32, bitcast=True)
        rounded = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).to(tl.uint16)
        return tl.where(v == v, rounded, 0x7FC0).to(tl.uint16)  # a carry would turn some NaN into infinities
    else:
        return v.to(dtype)
