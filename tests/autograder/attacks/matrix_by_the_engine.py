# convolution.toeplitz: 0 points, flagged
# The matrix of a linear function is its Jacobian.
import torch


def toeplitz(w, h, wd):
    x = torch.zeros(1, 1, h, wd, dtype=w.dtype)
    rows = torch.autograd.functional.jacobian(lambda x: conv_direct(x, w[None, None]).flatten(), x)  # noqa: F821
    return rows.reshape(-1, h * wd)
