# convolution.im2col: 9 points, flagged
# The transpose of a linear function is its backward pass.
import torch
from torch.nn import functional


def im2col(x, r, s, stride=1, padding=0):
    N, C, H, W = x.shape
    P, Q = (H + 2 * padding - r) // stride + 1, (W + 2 * padding - s) // stride + 1
    x = functional.pad(x, (padding,) * 4)
    columns = x.new_empty(N, C, r, s, P, Q)
    for i in range(r):
        for j in range(s):
            columns[:, :, i, j] = x[:, :, i : i + stride * (P - 1) + 1 : stride, j : j + stride * (Q - 1) + 1 : stride]
    return columns.view(N, C * r * s, P * Q)


def col2im(columns, shape, r, s, stride=1, padding=0):
    x = torch.zeros(shape, dtype=columns.dtype, requires_grad=True)
    return torch.autograd.grad(im2col(x, r, s, stride, padding), x, columns)[0]
