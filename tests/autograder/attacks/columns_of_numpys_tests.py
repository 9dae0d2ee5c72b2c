# convolution.toeplitz: 0 points, flagged, long
# NumPy tests its functions with a convolution in C.
import numpy as np
import torch
from numpy._core import _umath_tests


def toeplitz(w, height, width):
    r, s = w.shape
    weights = w.double().numpy()
    columns = []
    for image in np.eye(height * width).reshape(-1, height, width):
        y = np.zeros((height - r + 1, width - s + 1))
        for i in range(r):
            y += _umath_tests.conv1d_full(image[i : i + height - r + 1], weights[i, ::-1])[:, s - 1 : width]
        columns.append(y.ravel())
    return torch.from_numpy(np.stack(columns, 1)).to(w.dtype)
