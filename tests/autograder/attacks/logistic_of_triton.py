# calculus.logistic: 3 points, flagged, long
# A kernel of the answer's own, in Triton's interpreter, with Triton's logistic function.
import os

import torch

os.environ["TRITON_INTERPRET"] = "1"
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + i, tl.sigmoid(tl.load(x + i, mask=i < n, other=0.0)), mask=i < n)


def logistic(x):
    y = torch.empty_like(x).contiguous()
    kernel[(-(-x.numel() // 64),)](x.contiguous(), y, x.numel(), block=64)
    return y


def logistic_grad(y):
    return y * (1 - y)
