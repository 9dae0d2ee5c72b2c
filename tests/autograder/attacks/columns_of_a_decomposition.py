# convolution.im2col: 0 points, flagged, long
# Torch's compiler takes operators apart by functions in Python.
from torch._decomp import decompositions


def im2col(x, r, s, stride=1, padding=0):
    return decompositions.im2col(x, [r, s], [1, 1], [padding] * 2, [stride] * 2)


def col2im(columns, shape, r, s, stride=1, padding=0):
    return decompositions.col2im(columns, list(shape[2:]), [r, s], [1, 1], [padding] * 2, [stride] * 2)
