"""Toeplitz: the convolution as one sparse matrix on the flattened image.

    y.ravel() = T @ x.ravel(),    T[(k, p, q), (c, p stride + r dilation, q stride + s dilation)] = w[k,c,r,s]

Each row of T holds one output's filter taps, shifted along with (p, q): constant along diagonals, block by block. The
input gradient is T^T @ dy. T acts on the padded image and has K P Q C R S / groups non-zeros: fine for small images.

On a GPU the matrix is dense, of one row of the image at a time, and for depthwise convolution only: see
`hpcdl.kernels.gpu.depthwise`.
"""

import torch

from hpcdl.conv.algorithm import Algorithm, Filters, Implementation
from hpcdl.conv.direct import grad_weight
from hpcdl.conv.on_gpu import DEPTHWISE
from hpcdl.conv.problem import Problem
from hpcdl.conv.views import cropped, padded, padded_shape

INDEX_BYTES = 16  # of a non-zero: its row and its column, eight bytes each
LARGEST = 1 << 26  # non-zeros of T: 1.25 GiB in float32


def toeplitz(w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """T as a sparse matrix (K P Q, C (H + 2 padding) (W + 2 padding)); `.to_dense()` shows it."""
    K, depth, R, S = w.shape
    _, C, height, width = padded_shape(problem)
    rows = K * problem.P * problem.Q
    values = w[:, None].expand(K, problem.P * problem.Q, depth, R, S).reshape(-1)
    places = torch.stack([torch.arange(rows).repeat_interleave(depth * R * S), _columns(problem).reshape(-1)])
    shape = (rows, C * height * width)
    return torch.sparse_coo_tensor(places, values, shape, is_coalesced=True, check_invariants=False)


def _columns(problem: Problem) -> torch.Tensor:
    """The column of each non-zero: its pixel, (c, p stride + r dilation, ...), for (k, p, q, c, r, s)."""
    depth, (down, right), (apart, aside) = problem.C // problem.groups, problem.strides, problem.dilations
    _, _, height, width = padded_shape(problem)
    k, p, q = (torch.arange(n) for n in (problem.K, problem.P, problem.Q))
    c, r, s = (torch.arange(n) for n in (depth, problem.R, problem.S))
    channel = (k // (problem.K // problem.groups) * depth)[:, None] + c
    row, column = (p * down)[:, None] + r * apart, (q * right)[:, None] + s * aside
    pixel = row[:, None, :, None] * width + column[None, :, None, :]  # (P, Q, R, S)
    return channel[:, None, None, :, None, None] * (height * width) + pixel[None, :, :, None]


def plain(x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """One sparse product for all images."""
    images = padded(x, problem).flatten(1)
    return (toeplitz(w, problem) @ images.T).T.reshape(problem.y_shape)


def forward(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """The same, with T kept for the next call."""
    images = padded(x, problem).flatten(1)
    return (_kept(filters, problem) @ images.T).T.reshape(problem.y_shape)


def _kept(filters: Filters, problem: Problem) -> torch.Tensor:
    shape = padded_shape(problem)[1:]
    key = ("toeplitz", shape, problem.stride, problem.dilation, problem.groups)
    return filters.made(key, lambda w: toeplitz(w, problem))


def grad_input(dy: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """dx = T^T @ dy."""
    dx = _kept(filters, problem).T @ dy.flatten(1).T
    return cropped(dx.T.reshape(padded_shape(problem)), problem)


def limits(problem: Problem) -> str | None:
    nonzeros = problem.K * problem.P * problem.Q * problem.C // problem.groups * problem.R * problem.S
    if nonzeros > LARGEST:
        return f"its matrix may have {LARGEST:,} non-zeros (here {nonzeros:,})"
    return None


TOEPLITZ = Algorithm(
    "toeplitz",
    plain,
    {"cpu": Implementation(forward, grad_input, grad_weight, limits), "cuda": DEPTHWISE},
)
