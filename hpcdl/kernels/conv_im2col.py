"""The im2col matrix on the GPU: a row for each output pixel, in it what each weight of a filter meets, channels last.

Bound by memory: reads N H W C elements once, if the caches hold what windows share, and writes N P Q R S C, by 16 bytes
at a time where C elements are a multiple of 16 bytes. It only copies, so every dtype of 2 or 4 bytes will do.

Source: Chellapilla, Puri and Simard 2006, "High performance convolutional neural networks for document processing".
"""

import torch

from hpcdl.kernels.conv_problem import channels_last, output_size
from hpcdl.kernels.gpu import bits, can_run, countable, tl, triton

BLOCK = {"BM": 16, "BN": 128}


@triton.jit
def gather_windows(
    x, to, rows, P, Q, H, W, stride, padding,
    R: tl.constexpr, S: tl.constexpr, C: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """to[m, d] = x[n, p stride - padding + r, q stride - padding + s, c] for m = (n, p, q) and d = (r, s, c)."""
    m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    n, p, q = m // (P * Q), m // Q % P, m % Q
    r, s, c = d // (S * C), d // C % S, d % C
    h = (p * stride - padding)[:, None] + r[None, :]
    v = (q * stride - padding)[:, None] + s[None, :]
    inside = (m < rows)[:, None] & (d < R * S * C)[None, :]
    pixel = (n[:, None] * H + h) * W + v
    seen = inside & (h >= 0) & (h < H) & (v >= 0) & (v < W)
    copied = tl.load(x + pixel * C + c[None, :], seen, 0)
    tl.store(to + m[:, None] * (R * S * C) + d[None, :], copied, inside)


def im2col(x: torch.Tensor, R: int, S: int, stride: int = 1, padding: int = 0) -> torch.Tensor:
    """The matrix (N P Q, R S C) of x (N, C, H, W): times filters (R S C, K), channels last, it is the convolution.

    Raises ValueError with name, value and rule.
    """
    N, C, H, W = x.shape
    P, Q = output_size("im2col", x, x.new_empty(1, C, R, S, device="meta"), stride, padding)
    can_run("im2col", x=x)
    rows, width = N * P * Q, R * S * C
    countable("im2col", "the matrix", rows * width)
    to = x.new_empty(rows, width)
    grid = (triton.cdiv(rows, BLOCK["BM"]), triton.cdiv(width, BLOCK["BN"]))
    options = {"R": R, "S": S, "C": C, **BLOCK}
    gather_windows[grid](bits(channels_last(x)), bits(to), rows, P, Q, H, W, stride, padding, **options)
    return to
