"""Winograd's minimal filtering F(m, 3): an m x m tile of outputs for (m + 2)^2 products instead of 9 m^2.

    y = A^T [ (G w G^T) * (B^T x B) ] A,    x a tile of (m + 2)^2 pixels, w a 3 x 3 filter, * element by element

Over channels the product becomes (m + 2)^2 matrix products, one for each position in the tile. 3 x 3 filters and
stride 1 only. The one-dimensional transforms are in `hpcdl.kernels.winograd_transforms`, the fast forms in
`hpcdl.kernels.cpu.winograd` and `hpcdl.kernels.gpu.winograd`.
Source: Lavin and Gray 2016, "Fast algorithms for convolutional neural networks".
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch.nn.functional import pad

from hpcdl.conv.algorithm import Algorithm, Filters, Implementation
from hpcdl.conv.direct import grad_weight
from hpcdl.conv.layout import nhwc, padded_channels
from hpcdl.conv.on_gpu import winograd as on_gpu
from hpcdl.conv.problem import Problem
from hpcdl.conv.views import as_image, turned
from hpcdl.kernels.winograd_transforms import DATA, RESULT, TAPS


def both(transform: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]], x: torch.Tensor) -> torch.Tensor:
    """A one-dimensional transform along the rows and the columns, the last two axes of x."""
    x = torch.stack(transform(x.unbind(-2)), -2)
    return torch.stack(transform(x.unbind(-1)), -1)


def tiles(m: int, x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Tiles of (m + 2)^2 pixels that overlap by two: (N, C, rows, columns, m + 2, m + 2), zeros beyond the image."""
    (above, left), down, across = problem.paddings, -problem.P % m, -problem.Q % m
    x = pad(x, (left, left + across, above, above + down))
    return x.unfold(2, m + 2, m).unfold(3, m + 2, m)


def products(U: torch.Tensor, V: torch.Tensor, groups: int) -> torch.Tensor:
    """At every position of the tile, summed over c: (K, C / groups, i, j), (N, C, t, u, i, j) to (N, K, t, u, i, j)."""
    N, _, rows, columns, i, j = V.shape
    K, depth = U.shape[:2]
    left = U.reshape(groups, K // groups, depth, i * j).permute(3, 0, 1, 2)
    right = V.reshape(N, groups, depth, rows * columns, i * j).permute(4, 1, 2, 0, 3).flatten(3)
    return (left @ right).reshape(i, j, K, N, rows, columns).permute(3, 2, 4, 5, 0, 1)


def plain(m: int, x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Transform filters and tiles, multiply, transform back, put the tiles together."""
    U, V = both(TAPS[m], w), both(DATA[m], tiles(m, x, problem))
    y = both(RESULT[m], products(U, V, problem.groups))
    return y.transpose(3, 4).flatten(4).flatten(2, 3)[..., : problem.P, : problem.Q]


def forward(m: int, x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """Blocks of tiles through compiled transforms and products, each group of channels by itself."""
    U = filters.made(("winograd", m, problem.groups), partial(_packed, m, problem))
    return _compiled(m, x, U, problem.K, (problem.P, problem.Q), problem.paddings)


def grad_input(m: int, dy: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """dx is the convolution of dy with the filters turned by 180 degrees, input and output channels exchanged."""
    U = filters.made(("winograd turned", m, problem.groups), lambda w: _packed(m, problem, turned(w, problem)))
    dy, paddings = as_image(dy, problem)
    return _compiled(m, dy, U, problem.C, (problem.H, problem.W), paddings)


def _packed(m: int, problem: Problem, w: torch.Tensor) -> list[torch.Tensor]:
    """The transformed filters of each group."""
    from hpcdl.kernels.cpu.winograd import pack

    return [pack(m, group) for group in w.chunk(problem.groups)]


def _compiled(m, x, U: list, K: int, size: tuple[int, int], paddings: tuple[int, int]) -> torch.Tensor:
    from hpcdl.kernels.cpu.winograd import winograd  # Numba is slow to import

    groups = zip(nhwc(x).chunk(len(U), 3), U, strict=True)
    parts = [winograd(m, padded_channels(part), packed, K // len(U), size, paddings) for part, packed in groups]
    y = parts[0] if len(parts) == 1 else torch.cat(parts, 3)
    return y.permute(0, 3, 1, 2)


def limits(problem: Problem) -> str | None:
    """3 x 3 filters, stride 1, not dilated."""
    if (problem.R, problem.S, problem.stride, problem.dilation) != (3, 3, 1, 1):
        return "it can do 3 x 3 filters with stride 1 only" + (", not dilated" if problem.dilation != 1 else "")
    return None


def _algorithm(m: int) -> Algorithm:
    on_cpu = Implementation(partial(forward, m), partial(grad_input, m), grad_weight, limits)
    return Algorithm(f"winograd_{m}x{m}", partial(plain, m), {"cpu": on_cpu, "cuda": on_gpu(m)})


WINOGRAD_2X2, WINOGRAD_4X4 = _algorithm(2), _algorithm(4)
