"""im2col: every window of the image becomes a column, and the convolution one matrix product.

    columns[n, (c, r, s), (p, q)] = x[n, c, p stride + r, q stride + s];    y[n] = w (K, C R S) @ columns[n]

The image is stored R S times (divided by the stride twice). Source: Chellapilla, Puri and Simard 2006,
"High performance convolutional neural networks for document processing".
"""

from dataclasses import replace

import torch
from torch.nn.functional import fold

from hpcdl.conv.algorithm import Algorithm, Filters, Implementation
from hpcdl.conv.layout import nhwc
from hpcdl.conv.on_gpu import IM2COL as ON_GPU
from hpcdl.conv.problem import Problem
from hpcdl.conv.views import by_group, grouped, padded, taps, window


def im2col(x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """(N, C, H, W) to columns (N, C R S, P Q), one tap at a time."""
    x = padded(x, problem)
    columns = torch.stack([window(x, r, s, problem) for r, s in taps(problem)], 2)
    return columns.reshape(problem.N, problem.C * problem.R * problem.S, problem.P * problem.Q)


def col2im(columns: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The adjoint: each column is added to the window it came from, (N, C R S, P Q) to (N, C, H, W)."""
    size, kernel = (problem.H, problem.W), (problem.R, problem.S)
    return fold(columns, size, kernel, problem.dilation, problem.padding, problem.stride)


def plain(x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """One matrix product for each image and group."""
    columns = grouped(im2col(x, problem), problem)
    return (by_group(w, problem).flatten(2) @ columns).reshape(problem.y_shape)


def forward(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """One product for all images; windows are rows, copied by S C numbers that lie side by side in channels-last."""
    if problem.groups > 1:  # an image at a time: the columns of a batch of them may be tens of gigabytes
        one = replace(problem, N=1)
        return (
            torch.cat([plain(image[None], filters.w, one) for image in x]) if len(x) else plain(x, filters.w, problem)
        )
    image, (P, Q) = nhwc(padded(x, problem)), problem.y_shape[2:]
    (down, right), (apart, aside), (each, row, pixel, _) = problem.strides, problem.dilations, image.stride()
    windows = (problem.N, P, Q, problem.R, problem.S, problem.C)
    steps = (each, down * row, right * pixel, apart * row, aside * pixel, 1)
    rows = image.as_strided(windows, steps).reshape(problem.N * P * Q, -1)
    y = rows @ filters.made("im2col", lambda w: w.permute(2, 3, 1, 0).reshape(-1, problem.K))
    return y.view(problem.N, P, Q, problem.K).permute(0, 3, 1, 2)


def grad_input(dy: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """dx = col2im(w^T @ dy)."""
    columns = by_group(filters.w, problem).flatten(2).mT @ grouped(dy, problem).flatten(3)
    return col2im(columns.flatten(1, 2), problem)


def grad_weight(dy: torch.Tensor, x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """dw = sum over the images of dy @ columns^T."""
    columns = grouped(im2col(x, problem), problem)
    return (grouped(dy, problem).flatten(3) @ columns.mT).sum(0).reshape(problem.w_shape)


IM2COL = Algorithm(
    "im2col",
    plain,
    {"cpu": Implementation(forward, grad_input, grad_weight), "cuda": ON_GPU},
)
