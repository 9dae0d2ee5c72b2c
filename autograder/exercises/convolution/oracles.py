"""What this lab's checks compare with: torch's convolution in float64, and what its windows see."""

import torch
from torch.nn import functional


def conv(x, w, stride: int = 1, padding: int = 0) -> torch.Tensor:
    """The convolution of the course, computed by torch in float64."""
    return functional.conv2d(x.double(), w.double(), stride=stride, padding=padding).to(x.dtype)


def output(x, w, stride: int, padding: int) -> tuple[int, int]:
    """(P, Q) of the right answer."""
    _, _, p, q = conv(x[:1, :1], w[:1, :1], stride, padding).shape
    return p, q


def columns(x, r: int, s: int, stride: int = 1, padding: int = 0) -> torch.Tensor:
    """What each window sees, (N, C r s, P Q), by a convolution with filters that have a single 1."""
    c = x.shape[1]
    units = torch.eye(r * s, dtype=x.dtype).view(r * s, 1, r, s).repeat(c, 1, 1, 1)
    return functional.conv2d(x, units, stride=stride, padding=padding, groups=c).flatten(2)
