"""Depthwise convolution with large kernels (31 x 31, say) on the GPU's matrix units: one filter for each channel.

    y[p, q] = sum over r of x[p + r - padding, q - padding + ...] . w[r],    a row times a row of filters, is for
    32 outputs side by side a product with the band matrix T_r[i, j] = w[r, i - j], of 64 x 32.

The band fills 31 of 64 rows, so half of the multiplications are by zero; matrix units are far more than twice as fast
as the rest of the processor, and each x that is loaded meets 32 columns instead of one. Reads N C H W elements once, if
the caches hold the R rows that a row of outputs needs, and C R S weights; writes N C P Q.

Source: the Toeplitz form of a convolution, e.g. Golub and Van Loan 2013, "Matrix computations", section 4.8.
"""

import torch

from hpcdl.kernels.gpu.base import bits, narrow, operand, tl, triton
from hpcdl.kernels.gpu.direct import known_precision
from hpcdl.kernels.gpu.tiles import launch_bands

COLUMNS = 32  # outputs side by side in one program
ALIGNED = 8  # elements: 16 bytes of half precision


@triton.jit
def band_products(
    x, w, y, rows, CHANNELS: tl.constexpr, H: tl.constexpr, W: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    ABOVE: tl.constexpr, LEFT: tl.constexpr, LEAD: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BI: tl.constexpr, BQ: tl.constexpr,
):  # fmt: skip
    """y[n, c, p, q] for BM pairs m = (n, p), BQ columns q and the channel of grid axis 1.

    Columns i are seen from LEAD, not LEFT, to the left of q, so that loads start at multiples of 16 bytes.
    """
    P: tl.constexpr = H + 2 * ABOVE - R + 1
    Q: tl.constexpr = W + 2 * LEFT - S + 1
    tiles, c = (Q + BQ - 1) // BQ, tl.program_id(1)
    m = tl.program_id(0) // tiles * BM + tl.arange(0, BM)
    first = tl.program_id(0) % tiles * BQ
    n, h = m // P, m % P - ABOVE
    i, j = tl.arange(0, BI), tl.arange(0, BQ)
    column = first - LEAD + i
    s = (i - LEAD + LEFT)[:, None] - j[None, :]
    a_at = x + ((n * CHANNELS + c) * H + h)[:, None] * W + column[None, :]
    b_at = w + c * (R * S) + s
    wide = (m < rows)[:, None] & ((column >= 0) & (column < W))[None, :]
    acc = tl.full((BM, BQ), 0.0, tl.float32)
    for r in range(R):
        a = tl.load(a_at + r * W, wide & ((h + r >= 0) & (h + r < H))[:, None], 0)
        b = tl.load(b_at + r * S, (s >= 0) & (s < S), 0)
        acc = tl.dot(operand(a), operand(b), acc, input_precision=PRECISION)
    q = first + j
    to = y + ((n * CHANNELS + c) * P + m % P)[:, None] * Q + q[None, :]
    tl.store(to, narrow(acc, y.dtype.element_ty), (m < rows)[:, None] & (q < Q)[None, :])


def depthwise(
    x: torch.Tensor, w: torch.Tensor, paddings: tuple[int, int] = (0, 0), precision: str = "fp32"
) -> torch.Tensor:
    """y (N, C, P, Q), contiguous, of x (N, C, H, W) and w (C, 1, R, S), stride 1.

    `precision` as `hpcdl.kernels.gpu.direct.known_precision` has it.
    """
    (N, C, H, W), (R, S), (above, left) = x.shape, w.shape[2:], paddings
    P, Q = H + 2 * above - R + 1, W + 2 * left - S + 1
    y = x.new_empty(N, C, P, Q)
    lead = -(-left // ALIGNED) * ALIGNED
    launch_bands(
        band_products,
        lambda tile: (triton.cdiv(N * P, tile["BM"]) * triton.cdiv(Q, COLUMNS), C),
        bits(x.contiguous()), bits(w.contiguous()), bits(y), N * P, CHANNELS=C, H=H, W=W, R=R, S=S,
        ABOVE=above, LEFT=left, LEAD=lead, PRECISION=known_precision(precision),
        BI=triton.next_power_of_2(COLUMNS + S - 1 + lead - left), BQ=COLUMNS,
    )  # fmt: skip
    return y
