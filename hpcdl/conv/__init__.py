"""Convolution, six algorithms with one contract: cross-correlation as in torch.

`conv2d(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1, algorithm="auto") -> y` with `x (N, C, H, W)`,
`w (K, C / groups, R, S)`, `bias (K,)`, `y (N, K, P, Q)`: the arguments of torch's `conv2d`, on its devices,
differentiable any number of times. `ALGORITHMS[name]` is the same with its algorithm fixed,
`ALGORITHMS[name].plain(x, w, problem)` is the textbook algorithm, and `ALGORITHMS[name].devices` has its fast forms:
"cpu", in Numba, and "cuda", in Triton. A `Problem` is the shape of a convolution, for all of them. `prepare(w)`,
instead of `w`, keeps the filter transforms for further calls.

Wrong arguments, and problems that an algorithm cannot do, raise ValueError; anything that is not a tensor raises
TypeError.
"""

import time

import torch

from hpcdl.conv.algorithm import Algorithm, Filters, Implementation, convolve, in_transform, prepare
from hpcdl.conv.auto import choose, experience
from hpcdl.conv.layout import is_channels_last
from hpcdl.conv.model import Situation
from hpcdl.conv.problem import Pair, Problem
from hpcdl.conv.registry import ALGORITHMS, run


def conv2d(
    x: torch.Tensor,
    w: torch.Tensor | Filters,
    bias: torch.Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    algorithm: str = "auto",
) -> torch.Tensor:
    """Return `y (N, K, P, Q)` from `x (N, C, H, W)` and `w (K, C / groups, R, S)` by one of `ALGORITHMS`, or the
    fastest.

    `bias (K,)` is added to every pixel. `stride`, `padding` and `dilation` are one number, or a pair (rows, columns);
    `padding` may be "valid" (none) and, for stride 1, "same" (so much that y has the size of x).
    Inside transforms of torch.func, such as vmap, "auto" is torch's own.
    Raises ValueError for wrong shapes, types and options, and for a problem that the algorithm cannot do; TypeError for
    anything that is not a tensor.
    """
    if algorithm not in ("auto", *ALGORITHMS):
        raise ValueError(f'algorithm is {algorithm!r}; it must be "auto" or one of {", ".join(ALGORITHMS)}')
    compute = _by_the_quickest if algorithm == "auto" else ALGORITHMS[algorithm].differentiable
    return convolve(compute, x, w, bias, stride, padding, dilation, groups)


def quickest(x: torch.Tensor, w: torch.Tensor | Filters, problem: Problem) -> str:
    """Return the choice of `algorithm="auto"`: a name in `ALGORITHMS`, or "torch" or "torch_channels_last" for torch's
    own."""
    return choose(_situation(x, w, problem)) if problem.N else "torch"


def _situation(x: torch.Tensor, w: torch.Tensor | Filters, problem: Problem) -> Situation:
    prepared = isinstance(w, Filters) and w.prepared
    return Situation(problem, x.dtype, is_channels_last(x), prepared, torch.get_num_threads(), x.device.type)


def _by_the_quickest(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    if in_transform():
        return run("torch", x, filters, problem)
    name, begin = quickest(x, filters, problem), time.perf_counter()
    y = run(name, x, filters, problem)
    if problem.N:
        experience.note(_situation(x, filters, problem), name, time.perf_counter() - begin)
    return y


__all__ = ["ALGORITHMS", "Algorithm", "Filters", "Implementation", "Problem", "conv2d", "prepare", "quickest", "run"]
