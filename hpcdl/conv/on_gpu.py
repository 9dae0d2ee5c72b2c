"""The registry's algorithms on a GPU: kernels of `hpcdl.kernels.gpu` as implementations for `Algorithm`.

All take float32, float16 and bfloat16; products of half precision are summed in float32. Products of float32 are exact
or use 10 bits of each factor, like torch's own convolution: see `torch.backends.cudnn.allow_tf32`.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch

from hpcdl.conv.algorithm import Filters, Implementation
from hpcdl.conv.problem import Problem
from hpcdl.conv.views import as_image, turned

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LARGEST = 1 << 31  # elements of a tensor: kernels count in 32 bits


def precision(x: torch.Tensor) -> str:
    """How products of float32 are computed: as the user has it for torch's convolution."""
    return "tf32" if x.is_cuda and torch.backends.cudnn.allow_tf32 else "fp32"


def countable(problem: Problem, *more: int) -> str | None:
    """The rule where one of the problem's tensors, or of `more` numbers of elements, is too large to count."""
    most = max(*(math.prod(shape) for shape in (problem.x_shape, problem.w_shape, problem.y_shape)), *more)
    return f"its kernels count to 2^31 elements (here {most:,}): split the batch" if most >= LARGEST else None


# -- direct: the implicit matrix product -------------------------------------------------------------------------------


def geometry(problem: Problem) -> tuple[tuple[int, int], tuple[int, int], int]:
    return problem.strides, problem.paddings, problem.groups


def direct(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    from hpcdl.kernels.gpu.direct import forward  # Triton is slow to import, and may be missing

    return forward(x, filters.w, problem.y_shape[2:], *geometry(problem), precision(x))


def direct_grad_input(dy: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    from hpcdl.kernels.gpu.direct import input_gradient

    return input_gradient(dy, filters.w, problem.x_shape, *geometry(problem), precision(dy))


def grad_weight(dy: torch.Tensor, x: torch.Tensor, problem: Problem) -> torch.Tensor:
    from hpcdl.kernels.gpu.direct import weight_gradient

    return weight_gradient(x, dy, problem.w_shape, *geometry(problem), precision(x))


def direct_limits(problem: Problem) -> str | None:
    """Filters without dilation."""
    return "on a GPU it can do filters that are not dilated" if problem.dilation != 1 else countable(problem)


DIRECT = Implementation(direct, direct_grad_input, grad_weight, direct_limits, DTYPES)


# -- im2col: the matrix stored, and torch's product --------------------------------------------------------------------


def im2col(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """One product for all images, of windows as rows with the filters."""
    from hpcdl.kernels.gpu.im2col import im2col as windows

    N, K, P, Q = problem.y_shape
    rows = windows(x, (problem.R, problem.S), (P, Q), problem.strides, problem.paddings)
    y = rows @ filters.made("im2col", lambda w: w.permute(2, 3, 1, 0).reshape(-1, K))
    return y.view(N, P, Q, K).permute(0, 3, 1, 2)


def im2col_limits(problem: Problem) -> str | None:
    """One group, filters without dilation."""
    if problem.groups > 1 or problem.dilation != 1:
        return "on a GPU it can do one group of filters that are not dilated"
    return countable(problem, problem.N * problem.P * problem.Q * problem.R * problem.S * problem.C)


IM2COL = Implementation(im2col, direct_grad_input, grad_weight, im2col_limits, DTYPES)


# -- Toeplitz: band matrices for depthwise convolution -----------------------------------------------------------------


def depthwise(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    from hpcdl.kernels.gpu.depthwise import depthwise

    return depthwise(x, filters.w, problem.paddings, precision(x))


def depthwise_grad_input(dy: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    from hpcdl.kernels.gpu.depthwise import depthwise

    dy, paddings = as_image(dy, problem)
    return depthwise(dy, filters.made("depthwise turned", lambda w: turned(w, problem)), paddings, precision(dy))


def depthwise_limits(problem: Problem) -> str | None:
    """One filter for each channel, stride 1, no dilation."""
    if not problem.groups == problem.C == problem.K or (problem.stride, problem.dilation) != (1, 1):
        return "on a GPU it can do one filter for each channel with stride 1, not dilated"
    return countable(problem)


DEPTHWISE = Implementation(depthwise, depthwise_grad_input, grad_weight, depthwise_limits, DTYPES)


# -- Winograd ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Winograd:
    """The steps for tiles of m x m outputs."""

    m: int

    def forward(self, x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
        """Three launches: tiles to their transforms, products, and back."""
        from hpcdl.kernels.gpu.winograd import transformed, winograd

        U = filters.made(("winograd", "cuda", self.m), partial(transformed, self.m))
        return winograd(self.m, x, U, problem.y_shape[2:], problem.paddings, precision(x))

    def grad_input(self, dy: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
        """dx is the convolution of dy with the filters turned by 180 degrees, input and output channels exchanged."""
        from hpcdl.kernels.gpu.winograd import transformed, winograd

        key = ("winograd turned", "cuda", self.m)
        U = filters.made(key, lambda w: transformed(self.m, turned(w, problem)))
        dy, paddings = as_image(dy, problem)
        return winograd(self.m, dy, U, problem.x_shape[2:], paddings, precision(dy))

    def limits(self, problem: Problem) -> str | None:
        """3 x 3 filters, stride 1, one group, no dilation."""
        if (problem.R, problem.S, problem.stride, problem.dilation) != (3, 3, 1, 1):
            return "it can do 3 x 3 filters with stride 1 only" + (", not dilated" if problem.dilation != 1 else "")
        if problem.groups > 1:
            return "on a GPU it can do one group only"
        tiles = problem.N * -(-max(problem.P, problem.H) // self.m) * -(-max(problem.Q, problem.W) // self.m)
        return countable(problem, (self.m + 2) ** 2 * tiles * max(problem.C, problem.K))


def winograd(m: int) -> Implementation:
    """The implementation for tiles of m x m outputs; m is 2 or 4."""
    steps = Winograd(m)
    return Implementation(steps.forward, steps.grad_input, grad_weight, steps.limits, DTYPES)
