"""The im2col matrix on the GPU: a row for each output pixel, in it what each weight of a filter meets, channels last.

Bound by memory: reads N H W C elements once, if the caches hold what windows share, and writes N P Q R S C, by 16 bytes
at a time where C elements are a multiple of 16 bytes. It only copies, so every dtype of 2 or 4 bytes will do.

Source: Chellapilla, Puri and Simard 2006, "High performance convolutional neural networks for document processing".
"""

import torch

from hpcdl.kernels.gpu.base import bits, channels_last, tl, triton

BLOCK = {"BM": 16, "BN": 128}


@triton.jit
def gather_windows(
    x, to, rows, P, Q, H, W, h_step, v_step, above, left,
    R: tl.constexpr, S: tl.constexpr, C: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """to[m, d] = x[n, p h_step - above + r, q v_step - left + s, c] for m = (n, p, q) and d = (r, s, c)."""
    m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    n, p, q = m // (P * Q), m // Q % P, m % Q
    r, s, c = d // (S * C), d // C % S, d % C
    h = (p * h_step - above)[:, None] + r[None, :]
    v = (q * v_step - left)[:, None] + s[None, :]
    inside = (m < rows)[:, None] & (d < R * S * C)[None, :]
    pixel = (n[:, None] * H + h) * W + v
    seen = inside & (h >= 0) & (h < H) & (v >= 0) & (v < W)
    copied = tl.load(x + pixel * C + c[None, :], seen, 0)
    tl.store(to + m[:, None] * (R * S * C) + d[None, :], copied, inside)


def im2col(
    x: torch.Tensor,
    kernel: tuple[int, int],
    size: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    paddings: tuple[int, int] = (0, 0),
) -> torch.Tensor:
    """The matrix (N P Q, R S C) of x (N, C, H, W), a `kernel` (R, S) and a `size` (P, Q) of the outputs.

    Times filters (R S C, K) it is the convolution, channels last.
    """
    (N, C, H, W), (R, S), (P, Q) = x.shape, kernel, size
    rows, width = N * P * Q, R * S * C
    to = x.new_empty(rows, width)
    grid = (triton.cdiv(rows, BLOCK["BM"]), triton.cdiv(width, BLOCK["BN"]))
    options = {"R": R, "S": S, "C": C, **BLOCK}
    gather_windows[grid](bits(channels_last(x)), bits(to), rows, P, Q, H, W, *strides, *paddings, **options)
    return to
