"""Convolution, six algorithms with one contract: cross-correlation as torch has it.

`conv2d(x, w, stride=1, padding=0, groups=1, algorithm="auto") -> y` with `x (N, C, H, W)`, `w (K, C / groups, R, S)`,
`y (N, K, P, Q)`, float32 or float64, differentiable. `ALGORITHMS[name]` is the same with its algorithm fixed, and
`ALGORITHMS[name].plain(x, w, problem)` the algorithm as in the book. `prepare(w)`, in place of `w`, keeps the filter
transforms for further calls. Wrong arguments, and problems that an algorithm cannot do, raise ValueError.
"""

import torch

from hpcdl.conv.algorithm import Algorithm, Filters, prepare
from hpcdl.conv.auto import TORCH, Situation, by_torch, choose
from hpcdl.conv.direct import DIRECT
from hpcdl.conv.fft import FFT
from hpcdl.conv.im2col import IM2COL
from hpcdl.conv.layout import is_channels_last
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
    if algorithm not in ("auto", *ALGORITHMS):
        raise ValueError(f'algorithm is {algorithm!r}; it must be "auto" or one of {", ".join(ALGORITHMS)}')
    if algorithm != "auto":
        return ALGORITHMS[algorithm](x, w, stride, padding, groups)
    problem = Problem.of(x, w.w if isinstance(w, Filters) else w, stride, padding, groups)
    return run(quickest(x, w, problem), x, w, problem)


def quickest(x: torch.Tensor, w: torch.Tensor | Filters, problem: Problem) -> str:
    """What `algorithm="auto"` takes: a name of `ALGORITHMS`, or "torch" or "torch_channels_last" for torch's own."""
    if x.device.type != "cpu" or not problem.N:
        return "torch"
    threads = torch.get_num_threads()
    return choose(Situation(problem, x.dtype, is_channels_last(x), isinstance(w, Filters), threads))


def run(name: str, x: torch.Tensor, w: torch.Tensor | Filters, problem: Problem) -> torch.Tensor:
    """The convolution by a name that `quickest` gives."""
    if name in TORCH:
        if isinstance(w, Filters):  # once in the format in which torch wants them
            w = w.made(name, lambda w: w.contiguous(memory_format=TORCH[name]))
        return by_torch(name, x, w, problem)
    return ALGORITHMS[name](x, w, problem.stride, problem.padding, problem.groups)


__all__ = ["ALGORITHMS", "Algorithm", "Filters", "Problem", "conv2d", "prepare", "quickest", "run"]
