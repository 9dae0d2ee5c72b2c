# convolution.toeplitz: 0 points, flagged, long
# SciPy has the matrix of a filter's row.
import torch
from scipy.linalg import toeplitz as diagonals


def toeplitz(w, h, wd):
    R, S = w.shape
    rows = []
    for i in range(R):
        first = torch.zeros(wd - S + 1).numpy()
        first[0] = w[i, 0]
        across = torch.zeros(wd).numpy()
        across[:S] = w[i]
        rows.append(torch.from_numpy(diagonals(first, across)).to(w.dtype))
    T = w.new_zeros((h - R + 1) * (wd - S + 1), h * wd)
    for p in range(h - R + 1):
        for i, row in enumerate(rows):
            T[p * len(row) : (p + 1) * len(row), (p + i) * wd : (p + i + 1) * wd] = row
    return T
