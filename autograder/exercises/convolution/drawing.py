"""Images and filters that the checks of this lab draw."""

import math

import torch

from autograder.exercises.drawing import F64, normal, whole_number


def whole(rng, *shape) -> torch.Tensor:
    """Whole numbers from 1 to 9: sums and products of them are exact, and a message can be followed by hand."""
    return torch.randint(1, 10, shape, generator=rng).to(F64)


def numbered(rng, *shape: int) -> torch.Tensor:
    """Pixels numbered row after row, image after image, from a number of 1 to 9 on."""
    first = int(torch.randint(1, 10, (), generator=rng))
    return torch.arange(first, first + math.prod(shape), dtype=F64).view(shape)


def window(rng) -> tuple[int, ...]:
    """(n, c, h, w, r, s, stride, padding): images and a window that fits into them."""
    r, s, stride, padding = (whole_number(rng, low, 3) for low in (1, 1, 1, 0))
    n, c, h, w = (whole_number(rng, least, least + 3) for least in (1, 1, r, s))
    return n, c, h, w, r, s, stride, padding


Sizes = tuple[int, int, int, int, int, int, int]  # n, c, h, w, k, r, s


def problems(rng, rounds: int = 3) -> list[tuple[Sizes, int, int]]:
    """Some sizes of images and filters that fit into them, each with a stride and a padding."""
    drawn = [(window(rng), whole_number(rng, 1, 4)) for _ in range(rounds)]
    return [((n, c, h, w, k, r, s), stride, padding) for (n, c, h, w, r, s, stride, padding), k in drawn]


def images(rng, n: int, c: int, h: int, w: int, k: int, r: int, s: int, dtype=F64):
    """Random x (n, c, h, w) and w (k, c, r, s)."""
    return normal(rng, n, c, h, w, dtype=dtype), normal(rng, k, c, r, s, dtype=dtype)
