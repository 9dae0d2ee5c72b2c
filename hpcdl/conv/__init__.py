"""Convolution, six algorithms with one contract: cross-correlation as torch has it.

`conv2d(x, w, stride=1, padding=0, groups=1, algorithm="auto") -> y` with `x (N, C, H, W)`, `w (K, C / groups, R, S)`,
`y (N, K, P, Q)`, float32 or float64, differentiable. `ALGORITHMS[name]` is the same with its algorithm fixed, and
`ALGORITHMS[name].plain(x, w, problem)` the algorithm as in the book. `prepare(w)`, in place of `w`, keeps the filter
transforms for further calls. Wrong arguments, and problems that an algorithm cannot do, raise ValueError.
"""

import torch

from hpcdl.conv.algorithm import Algorithm, Filters, prepare
from hpcdl.conv.direct import DIRECT
from hpcdl.conv.fft import FFT
from hpcdl.conv.im2col import IM2COL
from hpcdl.conv.problem import Problem
from hpcdl.conv.toeplitz import TOEPLITZ
from hpcdl.conv.winograd import WINOGRAD_2X2, WINOGRAD_4X4

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm for algorithm in (DIRECT, IM2COL, TOEPLITZ, WINOGRAD_2X2, WINOGRAD_4X4, FFT)
}


def conv2d(
    x: torch.Tensor,
    w: torch.Tensor | Filters,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    algorithm: str = "auto",
) -> torch.Tensor:
    """`y (N, K, P, Q)` of `x (N, C, H, W)` and `w (K, C / groups, R, S)` by one of `ALGORITHMS`, or the quickest.

    Raises ValueError for wrong shapes, types and options, and for a problem that the algorithm cannot do.
    """
    if algorithm == "auto":
        return DIRECT(x, w, stride, padding, groups)
    if algorithm not in ALGORITHMS:
        raise ValueError(f'algorithm is {algorithm!r}; it must be "auto" or one of {", ".join(ALGORITHMS)}')
    return ALGORITHMS[algorithm](x, w, stride, padding, groups)


__all__ = ["ALGORITHMS", "Algorithm", "Filters", "Problem", "conv2d", "prepare"]
