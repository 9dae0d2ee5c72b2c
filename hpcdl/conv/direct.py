"""Direct convolution: the formula itself, one filter tap at a time.

    y[n,k,p,q] = sum over r, s of ( sum over c of w[k,c,r,s] x[n, c, p stride + r, q stride + s] )

For one tap (r, s) the inner sum is a matrix product of w[:, :, r, s] with a shifted view of the image, for all images
and outputs at once. Both gradients are the same products transposed.
"""

import torch
from torch.nn.functional import pad

from hpcdl.conv.algorithm import Algorithm, Filters
from hpcdl.conv.layout import channels_last
from hpcdl.conv.problem import Problem


def by_definition(x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The formula as seven loops, for any numbers; slow: to read, and to prove the rest by."""
    y, border, group = torch.zeros(problem.y_shape, dtype=x.dtype), problem.padding, problem.K // problem.groups
    for n, k, p, q in torch.cartesian_prod(*map(torch.arange, problem.y_shape)).tolist():
        for c, r, s in torch.cartesian_prod(*map(torch.arange, problem.w_shape[1:])).tolist():
            row, column = p * problem.stride + r - border, q * problem.stride + s - border
            if 0 <= row < problem.H and 0 <= column < problem.W:
                y[n, k, p, q] += w[k, c, r, s] * x[n, k // group * w.shape[1] + c, row, column]
    return y


def plain(x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """R S matrix products, added up."""
    x, w = grouped(padded(x, problem), problem), by_group(w, problem)
    terms = (w[..., r, s] @ window(x, r, s, problem).flatten(3) for r, s in taps(problem))
    y = next(terms)
    for term in terms:
        y = y + term
    return y.reshape(problem.y_shape)


def forward(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """All taps and channels of a tile of outputs in one go, compiled; groups by the matrix products."""
    if problem.groups > 1:
        return plain(x, filters.w, problem)
    from hpcdl.kernels.direct_cpu import direct, pack  # Numba is slow to import

    image = channels_last(padded(x, problem))
    y = direct(image, filters.made("direct", pack), problem.R, problem.S, problem.K, problem.stride)
    return y.permute(0, 3, 1, 2)


def grad_input(dy: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """dx[n,c, p stride + r, q stride + s] += sum over k of w[k,c,r,s] dy[n,k,p,q], for every tap."""
    dy, w = grouped(dy, problem).flatten(3), by_group(filters.w, problem)
    dx = dy.new_zeros(padded_shape(problem))
    for r, s in taps(problem):
        view = window(grouped(dx, problem), r, s, problem)
        view += (w[..., r, s].mT @ dy).view(view.shape)
    return cropped(dx, problem)


def grad_weight(dy: torch.Tensor, x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] x[n, c, p stride + r, q stride + s]."""
    x, dy = grouped(padded(x, problem), problem), grouped(dy, problem).flatten(3)
    products = [(dy @ window(x, r, s, problem).flatten(3).mT).sum(0) for r, s in taps(problem)]
    return torch.stack(products, -1).reshape(problem.w_shape)


# -- views that other algorithms use too ------------------------------------------------------------------------------


def taps(problem: Problem) -> list[tuple[int, int]]:
    """The positions (r, s) in the kernel."""
    return [(r, s) for r in range(problem.R) for s in range(problem.S)]


def padded_shape(problem: Problem) -> tuple[int, int, int, int]:
    border = 2 * problem.padding
    return problem.N, problem.C, problem.H + border, problem.W + border


def padded(x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The image with `padding` zeros on each side."""
    return pad(x, (problem.padding,) * 4) if problem.padding else x


def cropped(x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The image without its padding."""
    border = problem.padding
    return x[..., border : border + problem.H, border : border + problem.W]


def grouped(x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """(N, channels, ...) as (N, groups, channels / groups, ...)."""
    return x.unflatten(1, (problem.groups, x.shape[1] // problem.groups))


def by_group(w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """(K, C / groups, R, S) as (groups, K / groups, C / groups, R, S)."""
    return w.unflatten(0, (problem.groups, problem.K // problem.groups))


def window(x: torch.Tensor, r: int, s: int, problem: Problem) -> torch.Tensor:
    """The P x Q pixels of a padded image that meet tap (r, s): a view."""
    step, height, width = problem.stride, problem.P, problem.Q
    return x[..., r : r + (height - 1) * step + 1 : step, s : s + (width - 1) * step + 1 : step]


DIRECT = Algorithm("direct", plain, forward, grad_input, grad_weight)
