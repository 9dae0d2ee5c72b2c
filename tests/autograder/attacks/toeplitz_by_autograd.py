# convolution.toeplitz: 0 points, flagged, long
# The matrix is the derivative of the convolution.
import torch


def toeplitz(w, h, wd):
    x = torch.zeros(1, 1, h, wd, dtype=w.dtype)
    J = torch.autograd.functional.jacobian(lambda x: globals()["conv_direct"](x, w[None, None]).flatten(), x)
    return J.reshape(-1, h * wd)
