"""Direct convolution on the GPU, an implicit matrix product, channels last: forward and both gradients.

The im2col matrix is never stored: each block of it is gathered from the image into shared memory, by 16-byte loads
where the channels are a multiple of 16 bytes, and meets the tensor cores there. Reads x, w and writes y, once each, if
the caches hold what blocks share. Sums are in float32 whatever the inputs are. Same inputs, same bits: no atomics.

Source: Chetlur et al. 2014, "cuDNN: efficient primitives for deep learning", section 3.
"""

import torch

from hpcdl.kernels.gpu.base import INTERPRETED, bits, channels_last, empty_channels_last, narrow, operand, tl, triton
from hpcdl.kernels.gpu.tiles import launch_product

Two = tuple[int, int]  # for rows and for columns

PRECISIONS = {"fp32": "ieee", "tf32": "tf32", "tf32x3": "tf32x3"}


@triton.jit
def gathered_product(
    x, w, y, rows, columns, I, J, H, W, h_step, v_step, h_off, v_off, x_pitch, x_group,
    w_off, w_r, w_s, w_c, w_k, w_group, y_off, y_n, y_i, y_j, y_group,
    R: tl.constexpr, S: tl.constexpr, C: tl.constexpr, TAP: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y[m, k] = sum over r, s, c of x[n, i h_step + h_off + r TAP, j v_step + v_off + s TAP, c] w[r, s, c, k].

    Row m is pixel (n, i, j) of N x I x J. The forward pass, the input gradient (TAP = -1) and Winograd's products (a
    group for each position) are this sum; axis 1 of the grid counts groups.
    """
    tiles, group = (columns + BN - 1) // BN, tl.program_id(1)
    m = tl.program_id(0) // tiles * BM + tl.arange(0, BM)
    k = tl.program_id(0) % tiles * BN + tl.arange(0, BN)
    n, i, j = m // (I * J), m // J % I, m % J
    h = tl.where(m < rows, i * h_step + h_off, -(1 << 24))  # rows beyond the last lie above every image
    v = j * v_step + v_off
    a_at = x + group * x_group + ((n * H + h) * W + v) * x_pitch
    b_at = w + group * w_group + w_off + k * w_k
    acc = tl.full((BM, BN), 0.0, tl.float32)
    for start in range(0, R * S * C, BK):
        d = start + tl.arange(0, BK)
        r, s, c = d // (S * C), d // C % S, d % C
        hd, vd = h[:, None] + r[None, :] * TAP, v[:, None] + s[None, :] * TAP
        inside = (hd >= 0) & (hd < H) & (vd >= 0) & (vd < W) & (d < R * S * C)[None, :]
        a = tl.load(a_at[:, None] + ((r * W + s) * TAP * x_pitch + c)[None, :], inside, 0)
        b_inside = (d < R * S * C)[:, None] & (k < columns)[None, :]
        b = tl.load(b_at[None, :] + (r * w_r + s * w_s + c * w_c)[:, None], b_inside, 0)
        acc = tl.dot(operand(a), operand(b), acc, input_precision=PRECISION)
    to = y + group * y_group + y_off + n * y_n + i * y_i + j * y_j
    tl.store(to[:, None] + k[None, :], narrow(acc, y.dtype.element_ty), (m < rows)[:, None] & (k < columns)[None, :])


@triton.jit
def gathered_outer_product(
    x, dy, dw, rows, columns, rows_each, H, W, h_step, v_step, above, left, x_pitch, dy_pitch, dw_part,
    P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr, S: tl.constexpr, C: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dw[part, k, r, s, c] = sum over the part's pixels m = (n, p, q) of dy[m, k] x[n, p h_step - above + r, ..., c].

    Axis 1 of the grid counts parts of `rows_each` pixels, axis 2 groups of `columns` filters on C channels.
    """
    tiles, part, group = (R * S * C + BN - 1) // BN, tl.program_id(1), tl.program_id(2)
    k = tl.program_id(0) // tiles * BM + tl.arange(0, BM)
    d = tl.program_id(0) % tiles * BN + tl.arange(0, BN)
    r, s, c = d // (S * C) - above, d // C % S - left, d % C
    a_at = dy + group * columns + k
    b_at = x + group * C + (r * W + s) * x_pitch + c
    acc = tl.full((BM, BN), 0.0, tl.float32)
    last = tl.minimum(rows, (part + 1) * rows_each)
    for start in range(part * rows_each, last, BK):
        m = start + tl.arange(0, BK)
        n, h, v = m // (P * Q), m // Q % P * h_step, m % Q * v_step
        hd, vd = h[:, None] + r[None, :], v[:, None] + s[None, :]
        inside = (hd >= 0) & (hd < H) & (vd >= 0) & (vd < W) & (m < last)[:, None] & (d < R * S * C)[None, :]
        a = tl.load(a_at[:, None] + (m * dy_pitch)[None, :], (k < columns)[:, None] & (m < last)[None, :], 0)
        b = tl.load(b_at[None, :] + (((n * H + h) * W + v) * x_pitch)[:, None], inside, 0)
        acc = tl.dot(operand(a), operand(b), acc, input_precision=PRECISION)
    to = dw + part * dw_part + (group * columns + k)[:, None] * (R * S * C) + d[None, :]
    tl.store(to, acc, (k < columns)[:, None] & (d < R * S * C)[None, :])


def known_precision(precision: str) -> str:
    """Triton's name for how float32 is multiplied; raises ValueError for what there is not.

    "fp32" exactly, on NVIDIA's cards without matrix units; "tf32" with 10 bits of each factor; "tf32x3" with three such
    products, nearly exact. Half precision is multiplied as it is, and summed in float32, whatever this says.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; it is one of {', '.join(PRECISIONS)}")
    if precision == "tf32x3" and torch.version.hip:
        raise ValueError("precision 'tf32x3' is for NVIDIA's cards; on AMD's take 'fp32', on matrix units too")
    return PRECISIONS[precision]


def forward(
    x: torch.Tensor, w: torch.Tensor, size: Two, strides: Two, paddings: Two, groups: int = 1, precision: str = "fp32"
) -> torch.Tensor:
    """y (N, K, P, Q) of `size` (P, Q), channels last, of x (N, C, H, W) and w (K, C / groups, R, S).

    float32, float16 or bfloat16 in and out; `precision` as `known_precision` has it.
    """
    (N, C, H, W), (K, per_group, R, S), (P, Q) = x.shape, w.shape, size
    y = empty_channels_last(x, N, K, P, Q)
    _multiply(
        channels_last(x), channels_last(w), y, groups, known_precision(precision),
        pixels=(N, P, Q), columns=K // groups, image=(H, W, *strides, -paddings[0], -paddings[1]), x_pitch=C,
        taps=(R, S, per_group, 1), weights=(0, S * per_group, per_group, 1, R * S * per_group),
        out=(0, P * Q * K, Q * K, K),
    )  # fmt: skip
    return y


def input_gradient(
    dy: torch.Tensor,
    w: torch.Tensor,
    shape: tuple[int, int, int, int],
    strides: Two,
    paddings: Two,
    groups: int = 1,
    precision: str = "fp32",
) -> torch.Tensor:
    """dx of the given `shape` (N, C, H, W): in one dimension dx[h] = sum over r of dy[(h + padding - r) / stride] w[r].

    Rows h of one residue modulo the stride meet the same taps r = r0, r0 + stride, ...: a product for each residue
    wastes nothing on the taps that fall between output pixels.
    """
    (N, C, H, W), (K, per_group, R, S), (P, Q) = shape, w.shape, dy.shape[2:]
    (down, right), (above, left) = strides, paddings
    dx, dy, w = empty_channels_last(dy, N, C, H, W), channels_last(dy), channels_last(w)
    for a in range(min(down, H)):
        for b in range(min(right, W)):
            r0, s0 = (a + above) % down, (b + left) % right
            taps = max(0, -(-(R - r0) // down)), max(0, -(-(S - s0) // right))
            first = (r0 * S + s0) * per_group
            _multiply(
                dy, w, dx, groups, known_precision(precision),
                pixels=(N, -(-(H - a) // down), -(-(W - b) // right)), columns=per_group,
                image=(P, Q, 1, 1, (a + above) // down, (b + left) // right), x_pitch=K,
                taps=(*taps, K // groups, -1),
                weights=(first, down * S * per_group, right * per_group, R * S * per_group, 1),
                out=((a * W + b) * C, H * W * C, down * W * C, right * C),
            )  # fmt: skip
    return dx


def weight_gradient(
    x: torch.Tensor,
    dy: torch.Tensor,
    shape: tuple[int, int, int, int],
    strides: Two,
    paddings: Two,
    groups: int = 1,
    precision: str = "fp32",
) -> torch.Tensor:
    """dw of the given `shape` (K, C / groups, R, S) for x (N, C, H, W) and dy (N, K, P, Q).

    A few filters on many pixels give few programs: so the pixels are split into parts, whose sums are added in order.
    """
    (N, C, H, W), (K, per_group, R, S), (P, Q) = x.shape, shape, dy.shape[2:]
    x, dy, rows, columns = channels_last(x), channels_last(dy), N * P * Q, K // groups
    parts = _parts(x.device, rows, -(-columns // 128) * -(-(R * S * per_group) // 128) * groups)
    dw = x.new_empty(parts, K, R, S, per_group, dtype=torch.float32)
    launch_product(
        gathered_outer_product,
        lambda tile: (triton.cdiv(columns, tile["BM"]) * triton.cdiv(R * S * per_group, tile["BN"]), parts, groups),
        bits(x), bits(dy), dw, rows, columns, -(-rows // parts), H, W, *strides, *paddings, C, K, dw[0].numel(),
        R=R, S=S, C=per_group, P=P, Q=Q, PRECISION=known_precision(precision),
    )  # fmt: skip
    return dw.sum(0).to(x.dtype).permute(0, 3, 1, 2)


def _multiply(x, w, y, groups, precision, *, pixels, columns, image, x_pitch, taps, weights, out) -> None:
    """Launch `gathered_product` for groups that lie side by side in the channels of x and y and in the filters of w."""
    (N, I, J), (R, S, depth, tap) = pixels, taps
    launch_product(
        gathered_product,
        lambda tile: (triton.cdiv(N * I * J, tile["BM"]) * triton.cdiv(columns, tile["BN"]), groups),
        bits(x), bits(w), bits(y), N * I * J, columns, I, J, *image, x_pitch, depth, *weights, w.numel() // groups,
        *out, columns, R=R, S=S, C=depth, TAP=tap, PRECISION=precision,
    )  # fmt: skip


def _parts(device, rows: int, tiles: int) -> int:
    """Into how many parts to split `rows`, so that every multiprocessor has two programs and each at least 512 rows."""
    processors = 4 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count
    least = 16 if INTERPRETED else 512
    return max(1, min(-(-2 * processors // tiles), rows // least))
