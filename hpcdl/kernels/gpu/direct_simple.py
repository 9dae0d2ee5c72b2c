"""The implicit matrix product in its shortest form: what lab 05 builds, and what `direct` makes fast.

A convolution is the product of the im2col matrix, a row for each output pixel and a column for each weight of a filter,
with the filters. Implicit: the matrix is never stored, each block of it is gathered from the image when it is needed.
"""

import torch

from hpcdl.kernels.gpu.base import tl, triton


@triton.jit
def conv_simple(
    x, w, y, N, C, H, W, K, R, S, P, Q, stride, padding, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y (N, K, P, Q) = x (N, C, H, W) * w (K, C, R, S): a program computes BM pixels of BN channels."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)  # output pixels, of all images
    k = tl.program_id(1) * BN + tl.arange(0, BN)  # output channels
    n, p, q = m // (P * Q), m // Q % P, m % Q
    acc = tl.full((BM, BN), 0.0, tl.float32)
    for start in range(0, C * R * S, BK):
        d = start + tl.arange(0, BK)  # weights of a filter
        c, r, s = d // (R * S), d // S % R, d % S
        h = (p * stride - padding)[:, None] + r[None, :]
        v = (q * stride - padding)[:, None] + s[None, :]
        inside = (h >= 0) & (h < H) & (v >= 0) & (v < W) & (m < N * P * Q)[:, None] & (d < C * R * S)[None, :]
        a = tl.load(x + ((n[:, None] * C + c[None, :]) * H + h) * W + v, inside, 0.0)
        b = tl.load(w + k[None, :] * C * R * S + d[:, None], (k < K)[None, :] & (d < C * R * S)[:, None], 0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    to = y + ((n[:, None] * K + k[None, :]) * P + p[:, None]) * Q + q[:, None]
    tl.store(to, acc.to(y.dtype.element_ty), (m < N * P * Q)[:, None] & (k < K)[None, :])


def direct_simple(
    x: torch.Tensor, w: torch.Tensor, size: tuple[int, int], stride: int = 1, padding: int = 0
) -> torch.Tensor:
    """y (N, K, P, Q) of `size` (P, Q), x (N, C, H, W) and w (K, C, R, S), of float32 or float16."""
    (N, C, H, W), (K, _, R, S), (P, Q) = x.shape, w.shape, size
    y = x.new_empty(N, K, P, Q)
    grid = (triton.cdiv(N * P * Q, 32), triton.cdiv(K, 32))
    conv_simple[grid](
        x.contiguous(), w.contiguous(), y, N, C, H, W, K, R, S, P, Q, stride, padding, BM=32, BN=32, BK=32
    )
    return y
