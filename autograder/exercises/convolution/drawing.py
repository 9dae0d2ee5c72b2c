"""Images and filters that the checks of this lab draw."""

import torch

from autograder.exercises.drawing import F64, normal


def whole(rng, *shape) -> torch.Tensor:
    """Whole numbers from 1 to 9: sums and products of them are exact, and a message can be followed by hand."""
    return torch.randint(1, 10, shape, generator=rng).to(F64)


Sizes = tuple[int, int, int, int, int, int, int]  # n, c, h, w, k, r, s


def images(rng, n: int, c: int, h: int, w: int, k: int, r: int, s: int, dtype=F64):
    """Random x (n, c, h, w) and w (k, c, r, s)."""
    return normal(rng, n, c, h, w, dtype=dtype), normal(rng, k, c, r, s, dtype=dtype)
