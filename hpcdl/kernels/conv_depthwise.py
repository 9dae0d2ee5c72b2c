"""Depthwise convolution with large kernels (31 x 31, say) on the GPU's matrix units: one filter for each channel.

    y[p, q] = sum over r of x[p + r - padding, q - padding + ...] . w[r],    a row times a row of filters, is for
    32 outputs side by side a product with the band matrix T_r[i, j] = w[r, i - j], of 64 x 32.

The band fills 31 of 64 rows, so half of the multiplications are by zero; matrix units are far more than twice as fast
as the rest of the processor, and each x that is loaded meets 32 columns instead of one. Reads N C H W elements once, if
the caches hold the R rows that a row of outputs needs, and C R S weights; writes N C P Q.

Source: the Toeplitz form of a convolution, e.g. Golub and Van Loan 2013, "Matrix computations", section 4.8.
"""

import torch

from hpcdl.kernels.conv_configs import launch_bands
from hpcdl.kernels.conv_implicit import PRECISIONS, known_precision
from hpcdl.kernels.conv_problem import output_size
from hpcdl.kernels.gpu import bits, can_run, countable, narrow, operand, tl, triton

COLUMNS = 32  # outputs side by side in one program
ALIGNED = 8  # elements: 16 bytes of half precision


@triton.jit
def band_products(
    x, w, y, rows, CHANNELS: tl.constexpr, H: tl.constexpr, W: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    PADDING: tl.constexpr, LEAD: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BI: tl.constexpr, BQ: tl.constexpr,
):  # fmt: skip
    """y[n, c, p, q] for BM pairs m = (n, p), BQ columns q and the channel of grid axis 1.

    Columns i are seen from LEAD, not PADDING, to the left of q, so that loads start at multiples of 16 bytes.
    """
    P: tl.constexpr = H + 2 * PADDING - R + 1
    Q: tl.constexpr = W + 2 * PADDING - S + 1
    tiles, c = (Q + BQ - 1) // BQ, tl.program_id(1)
    m = tl.program_id(0) // tiles * BM + tl.arange(0, BM)
    first = tl.program_id(0) % tiles * BQ
    n, h = m // P, m % P - PADDING
    i, j = tl.arange(0, BI), tl.arange(0, BQ)
    column = first - LEAD + i
    s = (i - LEAD + PADDING)[:, None] - j[None, :]
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


def conv2d_depthwise(x: torch.Tensor, w: torch.Tensor, padding: int = 0, precision: str = "fp32") -> torch.Tensor:
    """y (N, C, P, Q), contiguous, of x (N, C, H, W) and w (C, 1, R, S), stride 1; not differentiable.

    The gradient for x is the same with `w.flip(2, 3)` and padding R - 1 - padding, for R = S. `precision` as for
    `conv2d_implicit`. Raises ValueError with name, value and rule.
    """
    P, Q = output_size("conv2d_depthwise", x, w, 1, padding, groups=x.shape[1])
    if len(w) != x.shape[1]:
        raise ValueError(f"conv2d_depthwise: w has {len(w)} filters, x {x.shape[1]} channels; it takes one for each")
    known_precision("conv2d_depthwise", precision)
    can_run("conv2d_depthwise", x=x, w=w)
    (N, C, H, W), (R, S) = x.shape, w.shape[2:]
    countable("conv2d_depthwise", "y", N * C * P * Q)
    y = x.new_empty(N, C, P, Q)
    lead = -(-padding // ALIGNED) * ALIGNED
    launch_bands(
        band_products,
        lambda tile: (triton.cdiv(N * P, tile["BM"]) * triton.cdiv(Q, COLUMNS), C),
        bits(x.contiguous()), bits(w.contiguous()), bits(y), N * P, CHANNELS=C, H=H, W=W, R=R, S=S,
        PADDING=padding, LEAD=lead, PRECISION=PRECISIONS[precision],
        BI=triton.next_power_of_2(COLUMNS + S - 1 + lead - padding), BQ=COLUMNS,
    )  # fmt: skip
    return y
