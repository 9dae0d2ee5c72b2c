"""All algorithms by name, and torch's own convolution."""

import torch
from torch.nn.functional import conv2d as torch_conv2d

from hpcdl.conv.algorithm import Algorithm, Filters, in_transform
from hpcdl.conv.direct import DIRECT
from hpcdl.conv.fft import FFT
from hpcdl.conv.im2col import IM2COL
from hpcdl.conv.layout import like_layout
from hpcdl.conv.model import TORCH
from hpcdl.conv.problem import Problem
from hpcdl.conv.toeplitz import TOEPLITZ
from hpcdl.conv.winograd import WINOGRAD_2X2, WINOGRAD_4X4

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm for algorithm in (DIRECT, IM2COL, TOEPLITZ, WINOGRAD_2X2, WINOGRAD_4X4, FFT)
}


def run(name: str, x: torch.Tensor, w: torch.Tensor | Filters, problem: Problem) -> torch.Tensor:
    """The convolution by one of `ALGORITHMS`, "torch" or "torch_channels_last"."""
    filters = w if isinstance(w, Filters) else Filters(w)
    return (
        by_torch(name, x, filters, problem) if name in TORCH else ALGORITHMS[name].differentiable(x, filters, problem)
    )


def by_torch(name: str, x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """torch's convolution in one of its memory formats; the result is in the format of x."""
    if in_transform():
        return torch_conv2d(x, filters.w, None, problem.stride, problem.padding, problem.dilation, problem.groups)
    w, image = filters.w, x.to(memory_format=TORCH[name])
    if filters.prepared:  # once in the format in which torch wants them
        w = filters.made(name, lambda w: w.contiguous(memory_format=TORCH[name]))
    y = torch_conv2d(image, w, None, problem.stride, problem.padding, problem.dilation, problem.groups)
    return like_layout(y, x)
