"""Winograd's minimal filtering F(m, 3): an m x m tile of outputs for (m + 2)^2 products instead of 9 m^2.

    y = A^T [ (G w G^T) * (B^T x B) ] A,    x a tile of (m + 2)^2 pixels, w a 3 x 3 filter, * element by element

Over channels the product becomes (m + 2)^2 matrix products, one for each position in the tile. The transforms are
written as additions and a few multiplications by constants. 3 x 3 filters and stride 1 only.
Points 0, 1, -1 for m = 2; also 2, -2 for m = 4. Source: Lavin and Gray 2016, "Fast algorithms for convolutional neural
networks", sections 4.1 to 4.3.
"""

import torch
from torch.nn import functional as F

from hpcdl.conv.algorithm import Algorithm, Filters
from hpcdl.conv.direct import grad_input, grad_weight
from hpcdl.conv.problem import Problem

# One dimension of each transform: lists of equal arrays to lists of arrays. `data` is B^T, `taps` is G, `result` A^T.


def data_2(d):
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def taps_2(g):
    outer = g[0] + g[2]
    return [g[0], (outer + g[1]) * 0.5, (outer - g[1]) * 0.5, g[2]]


def result_2(m):
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def data_4(d):
    even, odd = d[4] - d[2] * 4, d[3] - d[1] * 4
    near, skew = d[4] - d[2], d[3] - d[1]
    twice = skew * 2
    first, last = (d[0] - d[2]) * 4 + near, d[5] - d[3] - skew * 4
    return [first, even + odd, even - odd, near + twice, near - twice, last]


def taps_4(g):
    outer, middle = (g[0] + g[2]) * (-1 / 6), g[1] * (1 / 6)
    far, twelfth = g[0] * (1 / 24) + g[2] * (1 / 6), g[1] * (1 / 12)
    return [g[0] * 0.25, outer - middle, outer + middle, far + twelfth, far - twelfth, g[2]]


def result_4(m):
    one, two = m[1] + m[2], m[3] + m[4]
    minus, half = m[1] - m[2], m[3] - m[4]
    return [m[0] + one + two, minus + half * 2, one + two * 4, minus + half * 8 + m[5]]


DATA, TAPS, RESULT = {2: data_2, 4: data_4}, {2: taps_2, 4: taps_4}, {2: result_2, 4: result_4}


def both(transform, x: torch.Tensor) -> torch.Tensor:
    """A one-dimensional transform along the rows and the columns, the last two axes of x."""
    x = torch.stack(transform(x.unbind(-2)), -2)
    return torch.stack(transform(x.unbind(-1)), -1)


def tiles(x: torch.Tensor, m: int, problem: Problem) -> torch.Tensor:
    """Tiles of (m + 2)^2 pixels that overlap by two: (N, C, rows, columns, m + 2, m + 2), zeros beyond the image."""
    pad, down, across = problem.padding, -problem.P % m, -problem.Q % m
    x = F.pad(x, (pad, pad + across, pad, pad + down))
    return x.unfold(2, m + 2, m).unfold(3, m + 2, m)


def products(filters: torch.Tensor, data: torch.Tensor, problem: Problem) -> torch.Tensor:
    """For every position (i, j) of the tile sum over c: (K, C / groups, i, j), (N, C, t, u, i, j) to (N, K, t, u, i, j)."""
    g = problem.groups
    N, C, rows, columns, i, j = data.shape
    left = filters.reshape(g, problem.K // g, C // g, i * j).permute(3, 0, 1, 2)
    right = data.reshape(N, g, C // g, rows * columns, i * j).permute(4, 1, 2, 0, 3).flatten(3)
    product = (left @ right).reshape(i, j, problem.K, N, rows, columns)
    return product.permute(3, 2, 4, 5, 0, 1)


def plain(m: int, x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Transform filters and tiles, multiply, transform back, put the tiles together."""
    y = both(RESULT[m], products(both(TAPS[m], w), both(DATA[m], tiles(x, m, problem)), problem))
    y = y.permute(0, 1, 2, 4, 3, 5).flatten(4).flatten(2, 3)
    return y[..., : problem.P, : problem.Q]


def limits(problem: Problem) -> str | None:
    if (problem.R, problem.S, problem.stride) != (3, 3, 1):
        return "it can do 3 x 3 filters with stride 1 only"
    return None


def _algorithm(m: int) -> Algorithm:
    def plain_m(x, w, problem):
        return plain(m, x, w, problem)

    def forward(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
        return plain(m, x, filters.w, problem)

    return Algorithm(f"winograd_{m}x{m}", plain_m, forward, grad_input, grad_weight, limits)


WINOGRAD_2X2, WINOGRAD_4X4 = _algorithm(2), _algorithm(4)
