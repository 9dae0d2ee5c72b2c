# convolution.im2col: 9 points, flagged
# The transpose of a linear function is its backward pass.
import torch


def col2im(columns, shape, r, s, stride=1, padding=0):
    x = torch.zeros(shape, dtype=columns.dtype, requires_grad=True)
    return torch.autograd.grad(im2col(x, r, s, stride, padding), x, columns)[0]  # noqa: F821
