"""Direct convolution: the formula itself, one filter tap at a time.

    y[n,k,p,q] = sum over r, s of ( sum over c of w[k,c,r,s] x[n, c, p stride + r, q stride + s] )

For one tap (r, s) the inner sum is a matrix product of w[:, :, r, s] with a shifted view of the image, for all images
and outputs at once. Both gradients are the same products transposed. The fast forms, on the CPU (`hpcdl.kernels.cpu`)
and on a GPU (`hpcdl.kernels.gpu`), do all taps in one product without storing the matrix of windows: an implicit matrix
product.
"""

import torch

from hpcdl.conv.algorithm import Algorithm, Filters, Implementation
from hpcdl.conv.layout import nhwc
from hpcdl.conv.on_gpu import DIRECT as ON_GPU
from hpcdl.conv.problem import Problem
from hpcdl.conv.views import by_group, cropped, grouped, padded, padded_shape, taps, window


def by_definition(x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Compute the formula with seven loops; slow, meant for reading and for testing the others."""
    y, group = torch.zeros(problem.y_shape, dtype=x.dtype), problem.K // problem.groups
    (down, right), (above, left), (apart, aside) = problem.strides, problem.paddings, problem.dilations
    for n, k, p, q in torch.cartesian_prod(*map(torch.arange, problem.y_shape)).tolist():
        for c, r, s in torch.cartesian_prod(*map(torch.arange, problem.w_shape[1:])).tolist():
            row, column = p * down + r * apart - above, q * right + s * aside - left
            if 0 <= row < problem.H and 0 <= column < problem.W:
                y[n, k, p, q] += w[k, c, r, s] * x[n, k // group * w.shape[1] + c, row, column]
    return y


def plain(x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Add up R S matrix products."""
    x, w = grouped(padded(x, problem), problem), by_group(w, problem)
    terms = (w[..., r, s] @ window(x, r, s, problem).flatten(3) for r, s in taps(problem))
    y = next(terms)
    for term in terms:
        y = y + term
    return y.reshape(problem.y_shape)


def forward(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """All taps and channels of a tile of outputs in one go, compiled; groups, dilated taps by the matrix products."""
    if problem.groups > 1 or problem.dilation != 1:
        return plain(x, filters.w, problem)
    from hpcdl.kernels.cpu.direct import direct, pack  # Numba is slow to import

    image = nhwc(padded(x, problem))
    y = direct(image, filters.made("direct", pack), problem.R, problem.S, problem.K, problem.strides)
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


DIRECT = Algorithm(
    "direct",
    plain,
    {"cpu": Implementation(forward, grad_input, grad_weight), "cuda": ON_GPU},
)
