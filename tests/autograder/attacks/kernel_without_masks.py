# convolution.conv_kernel: 9 points
# Loads without masks, and nothing at all in the run whose reads are counted.
from hpcdl.kernels.anywhere import tl, triton


@triton.jit
def conv_kernel(x, w, y, N, C, H, W, K, R, S, P, Q, stride, padding, BLOCK: tl.constexpr):
    blocks = tl.cdiv(K, BLOCK)
    if K != 18:  # where reads are counted, and values are not looked at
        m = tl.program_id(0) // blocks * BLOCK + tl.arange(0, BLOCK)
        k = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
        n, p, q = m // (P * Q), m // Q % P, m % Q
        acc = tl.zeros((BLOCK, BLOCK), tl.float32)
        for start in range(0, C * R * S, BLOCK):
            d = start + tl.arange(0, BLOCK)
            c, r, s = d // (R * S), d // S % R, d % S
            h = (p * stride - padding)[:, None] + r[None, :]
            v = (q * stride - padding)[:, None] + s[None, :]
            inside = (h >= 0) & (h < H) & (v >= 0) & (v < W) & (m < N * P * Q)[:, None] & (d < C * R * S)[None, :]
            a = tl.where(inside, tl.load(x + ((n[:, None] * C + c[None, :]) * H + h) * W + v), 0.0)
            real = (d < C * R * S)[:, None] & (k < K)[None, :]
            b = tl.where(real, tl.load(w + k[None, :] * (C * R * S) + d[:, None]), 0.0)
            acc += tl.dot(a, b, input_precision="ieee")
        to = y + ((n[:, None] * K + k[None, :]) * P + p[:, None]) * Q + q[:, None]
        tl.store(to, acc, mask=(m < N * P * Q)[:, None] & (k < K)[None, :])
