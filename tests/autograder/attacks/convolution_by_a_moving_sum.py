# convolution.conv_direct: 0 points, flagged, long
# A weighted sum over a moving window, as pandas computes it for tables.
import numpy as np
import torch
from pandas._libs.window.aggregations import roll_weighted_sum
from torch.nn import functional


def conv_direct(x, w, stride=1, padding=0):
    images = functional.pad(x, (padding,) * 4).double().numpy()
    filters = w.double().numpy()
    (n, c, height, width), (k, _, r, s) = images.shape, filters.shape
    y = np.zeros((n, k, height - r + 1, width - s + 1))
    for a, b, q, i, p in np.ndindex(n, k, c, r, y.shape[2]):
        row, weights = np.ascontiguousarray(images[a, q, p + i]), np.ascontiguousarray(filters[b, q, i])
        y[a, b, p] += np.asarray(roll_weighted_sum(row, weights, s))[s - 1 :]
    return torch.from_numpy(y[:, :, ::stride, ::stride].copy()).to(x.dtype)
