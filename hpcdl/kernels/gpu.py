"""What every Triton kernel here needs: Triton or words that say how to get it, a place to run, and bfloat16 as bits.

Triton's interpreter runs kernels on the CPU, slowly, when TRITON_INTERPRET=1 is set before they are imported. It takes
bfloat16 for the integers that it is stored as: so there tensors of bfloat16 go in as uint16 (`bits`), and kernels that
compute convert at their edges (`widen`, `narrow`). Torch's optimizers import Triton; whoever did so before the
interpreter was chosen has `tl.zeros` and `tl.cdiv` for compiled kernels only: kernels here do without them.
The interpreter of Triton 3.6 cannot loop to an argument's value with NumPy 2.4 and later; from 3.7 on it can.
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError as error:
    advice = "the GPU kernels need Triton, which this Python lacks: pip install 'triton>=3.6,<3.10' (on Linux)"
    raise ImportError(advice) from error

INTERPRETED = triton.knobs.runtime.interpret
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def can_run(name: str, **tensors: torch.Tensor) -> None:
    """Raise ValueError where the kernels of `name` cannot run on these tensors, with what to do about it."""
    first, x = next(iter(tensors.items()))
    for other, y in tensors.items():
        if y.dtype not in DTYPES:
            raise ValueError(f"{name}: {other} is of {y.dtype}; the kernels take float32, float16 and bfloat16")
        if (y.dtype, y.device) != (x.dtype, x.device):
            described = f"{first} is of {x.dtype} on {x.device}, {other} of {y.dtype} on {y.device}"
            raise ValueError(f"{name}: {described}; they must agree")
        countable(name, other, y.numel())
    if not (x.is_cuda or INTERPRETED):
        raise ValueError(
            f"{name}: {first} is on {x.device}, and kernels run on a GPU: move it there with .cuda(), or set "
            "TRITON_INTERPRET=1 before importing hpcdl.kernels, and Triton's interpreter runs them here, slowly"
        )


def countable(name: str, what: str, elements: int) -> None:
    """Raise ValueError where `what` has more elements than the kernels' 32-bit offsets reach."""
    if elements >= 2**31:
        raise ValueError(f"{name}: {what} has {elements:,} elements, and kernels count to 2^31; split the batch")


def bits(x: torch.Tensor) -> torch.Tensor:
    """`x` as a kernel may have it: under the interpreter bfloat16 becomes the uint16 that it is stored as."""
    return x.view(torch.uint16) if INTERPRETED and x.dtype == torch.bfloat16 else x


@triton.jit
def widen(v):
    """The float32 of loaded values, of which uint16 are the upper halves."""
    if v.dtype == tl.uint16:
        return (v.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        return v.to(tl.float32)


@triton.jit
def operand(v):
    """Loaded values as a matrix product takes them: as they are, but for bfloat16's bits."""
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
