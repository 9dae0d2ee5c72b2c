# convolution.conv_kernel: 0 points
# The kernel computes in NumPy and torch, on the arrays behind its tensors: the interpreter runs it as Python.
from hpcdl.kernels.anywhere import tl, triton


@triton.jit
def conv_kernel(x, w, y, N, C, H, W, K, R, S, P, Q, stride, padding, BLOCK: tl.constexpr):
    import numpy
    import torch as t

    blocks = tl.cdiv(K, BLOCK)
    nx, nw = int(N) * int(C) * int(H) * int(W), int(K) * int(C) * int(R) * int(S)
    i = tl.arange(0, 8192)
    xs = tl.load(x + i, mask=i < nx, other=0.0)
    ws = tl.load(w + i, mask=i < nw, other=0.0)
    X = t.from_numpy(numpy.array(xs.handle.data[:nx])).view(int(N), int(C), int(H), int(W))
    F = t.from_numpy(numpy.array(ws.handle.data[:nw])).view(int(K), int(C), int(R), int(S))
    out = conv_direct(X, F, int(stride), int(padding)).contiguous().flatten()  # noqa: F821
    m = tl.program_id(0) // blocks * BLOCK + tl.arange(0, BLOCK)
    k = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    n, p, q = m // (P * Q), m // Q % P, m % Q
    at = ((n[:, None] * K + k[None, :]) * P + p[:, None]) * Q + q[:, None]
    ok = (m < N * P * Q)[:, None] & (k < K)[None, :]
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    idx = numpy.where(ok.handle.data, at.handle.data, 0)
    acc.handle.data = out.numpy()[idx].astype(numpy.float32)
    tl.store(y + at, acc, mask=ok)
