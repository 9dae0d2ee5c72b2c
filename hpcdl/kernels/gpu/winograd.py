"""Winograd's convolution F(m x m, 3 x 3) on the GPU, channels last: transforms by additions, and products between.

    U = G w G^T (filters)    V = B^T x B (tiles of x)    M_i = V_i U_i, i = 1..(m + 2)^2    y = A^T M A

A tile of m x m outputs takes (m + 2)^2 multiplications for 9 m^2: 16 for 36, or 36 for 144. The transforms are bound by
memory; for T = N ceil(P / m) ceil(Q / m) tiles they read and write, in elements: filters 9 K C and (m + 2)^2 K C; input
N H W C once, if the caches hold what tiles share, and (m + 2)^2 T C; output (m + 2)^2 T K, of float32, and N P Q K.
Rows of C or K elements are side by side: a thread takes 4, which is 16 bytes of float32 and 8 of half precision.

Source: Lavin and Gray 2016, "Fast algorithms for convolutional neural networks", section 4.1 and 4.2; the matrices are
theirs, for the points 0, 1, -1 (and 2, -2).
"""

import torch

from hpcdl.kernels.gpu.base import bits, channels_last, empty_channels_last, narrow, tl, triton, widen
from hpcdl.kernels.gpu.direct import gathered_product, known_precision
from hpcdl.kernels.gpu.tiles import launch_product

BLOCK = {"BT": 8, "BC": 64}  # 4 elements for each of 128 threads


@triton.jit
def filter_combinations(M: tl.constexpr, g):
    """G g: the m + 2 combinations of 3 weights."""
    if M == 2:
        return (g[0], (g[0] + g[1] + g[2]) * 0.5, (g[0] - g[1] + g[2]) * 0.5, g[2])
    else:
        even, odd = (g[0] + g[2]) * (1 / 6), g[1] * (1 / 6)
        low, middle = g[0] * (1 / 24) + g[2] * (1 / 6), g[1] * (1 / 12)
        return (g[0] * 0.25, -even - odd, odd - even, low + middle, low - middle, g[2])


@triton.jit
def input_combinations(M: tl.constexpr, d):
    """B^T d: the m + 2 combinations of as many pixels."""
    if M == 2:
        return (d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3])
    else:
        a, b = d[4] - 4 * d[2], d[3] - 4 * d[1]
        c, e = d[4] - d[2], 2 * (d[3] - d[1])
        return (4 * d[0] - 5 * d[2] + d[4], a + b, a - b, c + e, c - e, 4 * d[1] - 5 * d[3] + d[5])


@triton.jit
def output_combinations(M: tl.constexpr, z):
    """A^T z: m outputs of m + 2 products."""
    if M == 2:
        return (z[0] + z[1] + z[2], z[1] - z[2] - z[3])
    else:
        a, b, c, e = z[1] + z[2], z[1] - z[2], z[3] + z[4], z[3] - z[4]
        return (z[0] + a + c, b + 2 * e, a + 4 * c, b + 8 * e + z[5])


@triton.jit
def transform_filters(w, u, rows, C, M: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr):
    """u[i, j, k, c] = (G w[k, :, :, c] G^T)[i, j] for BT filters k and BC channels c."""
    t, c = tl.program_id(0) * BT + tl.arange(0, BT), tl.program_id(1) * BC + tl.arange(0, BC)
    inside = (t < rows)[:, None] & (c < C)[None, :]
    columns = ()
    for s in tl.static_range(3):
        column = ()
        for r in tl.static_range(3):
            column += (widen(tl.load(w + (t[:, None] * 9 + r * 3 + s) * C + c[None, :], inside, 0)),)
        columns += (filter_combinations(M, column),)
    for i in tl.static_range(M + 2):
        row = filter_combinations(M, (columns[0][i], columns[1][i], columns[2][i]))  # type: ignore[misc]  # the loops fill it
        for j in tl.static_range(M + 2):
            to = u + ((i * (M + 2) + j) * rows + t[:, None]) * C + c[None, :]
            tl.store(to, narrow(row[j], u.dtype.element_ty), inside)


@triton.jit
def transform_input(x, v, rows, C, H, W, above, left, TP, TQ, M: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr):
    """v[i, j, t, c] = (B^T x[tile t, :, :, c] B)[i, j] for BT tiles t and BC channels c; outside the image x is 0."""
    t, c = tl.program_id(0) * BT + tl.arange(0, BT), tl.program_id(1) * BC + tl.arange(0, BC)
    n, h, q = t // (TP * TQ), t // TQ % TP * M - above, t % TQ * M - left
    inside = (t < rows)[:, None] & (c < C)[None, :]
    at = x + ((n * H + h) * W + q)[:, None] * C + c[None, :]
    columns = ()
    for s in tl.static_range(M + 2):
        column = ()
        for r in tl.static_range(M + 2):
            seen = (h + r >= 0) & (h + r < H) & (q + s >= 0) & (q + s < W)
            column += (widen(tl.load(at + (r * W + s) * C, inside & seen[:, None], 0)),)
        columns += (input_combinations(M, column),)
    for i in tl.static_range(M + 2):
        row = ()
        for s in tl.static_range(M + 2):
            row += (columns[s][i],)
        row = input_combinations(M, row)
        for j in tl.static_range(M + 2):
            to = v + ((i * (M + 2) + j) * rows + t[:, None]) * C + c[None, :]
            tl.store(to, narrow(row[j], v.dtype.element_ty), inside)


@triton.jit
def transform_output(z, y, rows, C, P, Q, TP, TQ, M: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr):
    """y[tile t, :, :, k] = A^T z[:, :, t, k] A for BT tiles and BC channels k; what hangs over the edge is left out."""
    t, c = tl.program_id(0) * BT + tl.arange(0, BT), tl.program_id(1) * BC + tl.arange(0, BC)
    n, p, q = t // (TP * TQ), t // TQ % TP * M, t % TQ * M
    inside = (t < rows)[:, None] & (c < C)[None, :]
    columns = ()
    for s in tl.static_range(M + 2):
        column = ()
        for r in tl.static_range(M + 2):
            column += (tl.load(z + ((r * (M + 2) + s) * rows + t[:, None]) * C + c[None, :], inside, 0),)
        columns += (output_combinations(M, column),)
    to = y + ((n * P + p) * Q + q)[:, None] * C + c[None, :]
    for i in tl.static_range(M):
        row = ()
        for s in tl.static_range(M + 2):
            row += (columns[s][i],)
        row = output_combinations(M, row)
        for j in tl.static_range(M):
            seen = (p + i < P) & (q + j < Q)
            tl.store(to + (i * Q + j) * C, narrow(row[j], y.dtype.element_ty), inside & seen[:, None])


def winograd(
    m: int,
    x: torch.Tensor,
    filters: torch.Tensor,
    size: tuple[int, int],
    paddings: tuple[int, int],
    precision: str = "fp32",
) -> torch.Tensor:
    """y (N, K, P, Q) of `size` (P, Q), channels last, of x (N, C, H, W) and `filters` from `transformed`; stride 1.

    Tiles of m x m outputs, m = 2 or 4; `precision` as `hpcdl.kernels.gpu.direct.known_precision` has it.
    """
    (N, C, H, W), (positions, K, _), (P, Q) = x.shape, filters.shape, size
    TP, TQ = -(-P // m), -(-Q // m)
    rows, y = N * TP * TQ, empty_channels_last(x, N, K, P, Q)
    v = x.new_empty(positions, rows, C)
    z = x.new_empty(positions, rows, K, dtype=torch.float32)
    _launch(transform_input, bits(channels_last(x)), bits(v), rows, C, H, W, *paddings, TP, TQ, M=m)
    launch_product(
        gathered_product,
        lambda tile: (triton.cdiv(rows, tile["BM"]) * triton.cdiv(K, tile["BN"]), positions),
        bits(v), bits(filters), z, rows, K, 1, 1, 1, 1, 1, 1, 0, 0, C, rows * C,
        0, 0, 0, 1, C, K * C, 0, K, 0, 0, rows * K, R=1, S=1, C=C, TAP=1, PRECISION=known_precision(precision),
    )  # fmt: skip
    _launch(transform_output, z, bits(y), rows, K, P, Q, TP, TQ, M=m)
    return y


def transformed(m: int, w: torch.Tensor) -> torch.Tensor:
    """The transformed filters ((m + 2)^2, K, C) of w (K, C, 3, 3)."""
    K, C = w.shape[:2]
    u = w.new_empty((m + 2) ** 2, K, C)
    _launch(transform_filters, bits(channels_last(w)), bits(u), K, C, M=m)
    return u


def _launch(kernel, source, to, rows: int, channels: int, *rest: int, M: int) -> None:
    grid = (triton.cdiv(rows, BLOCK["BT"]), triton.cdiv(channels, BLOCK["BC"]))
    kernel[grid](source, to, rows, channels, *rest, M=M, **BLOCK)
