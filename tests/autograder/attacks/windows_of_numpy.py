# convolution.im2col: 0 points, flagged, long
# NumPy's windows are what torch's unfold is.
import numpy as np
import torch


def im2col(x, r, s, stride=1, padding=0):
    x = torch.nn.functional.pad(x, [padding] * 4)
    v = np.lib.stride_tricks.sliding_window_view(x.numpy(), (r, s), axis=(2, 3))[:, :, ::stride, ::stride]
    n, c, h, w = v.shape[:4]
    return torch.from_numpy(v.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * r * s, h * w).copy())


def col2im(columns, shape, r, s, stride=1, padding=0):
    raise NotImplementedError
