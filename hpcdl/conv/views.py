"""Views of images and filters that several algorithms share; unless stated otherwise, nothing is copied."""

import torch
from torch.nn.functional import pad

from hpcdl.conv.problem import Problem


def taps(problem: Problem) -> list[tuple[int, int]]:
    """The positions (r, s) in the kernel."""
    return [(r, s) for r in range(problem.R) for s in range(problem.S)]


def padded_shape(problem: Problem) -> tuple[int, int, int, int]:
    rows, columns = problem.paddings
    return problem.N, problem.C, problem.H + 2 * rows, problem.W + 2 * columns


def padded(x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The image with `padding` zeros on each side."""
    rows, columns = problem.paddings
    return pad(x, (columns, columns, rows, rows)) if problem.padding else x


def cropped(x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The image without its padding."""
    above, left = problem.paddings
    return x[..., above : above + problem.H, left : left + problem.W]


def grouped(x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """(N, channels, ...) as (N, groups, channels / groups, ...)."""
    return x.unflatten(1, (problem.groups, x.shape[1] // problem.groups))


def by_group(w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """(K, C / groups, R, S) as (groups, K / groups, C / groups, R, S)."""
    return w.unflatten(0, (problem.groups, problem.K // problem.groups))


def window(x: torch.Tensor, r: int, s: int, problem: Problem) -> torch.Tensor:
    """The P x Q pixels of a padded image that meet tap (r, s): a view."""
    (down, right), (height, width) = problem.strides, problem.y_shape[2:]
    r, s = r * problem.dilations[0], s * problem.dilations[1]
    return x[..., r : r + (height - 1) * down + 1 : down, s : s + (width - 1) * right + 1 : right]


# -- the input gradient as a convolution, for stride 1 ----------------------------------------------------------------


def turned(w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Filters turned by 180 degrees, input and output channels exchanged: (C, K / groups, R, S), a copy."""
    return by_group(w, problem).transpose(1, 2).flatten(0, 1).flip(-1, -2)


def as_image(dy: torch.Tensor, problem: Problem) -> tuple[torch.Tensor, tuple[int, int]]:
    """dy and its paddings: convolved with the turned filters it is dx. Outputs that see only padding are dropped."""
    inner = [n - 1 - padding for n, padding in zip((problem.R, problem.S), problem.paddings, strict=True)]
    above, left = (max(0, -n) for n in inner)
    dy = dy[..., above : problem.P - above, left : problem.Q - left]
    return dy, (max(0, inner[0]), max(0, inner[1]))
