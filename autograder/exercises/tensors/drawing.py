"""What the checks of this lab draw and build: small whole numbers, and tensors element by element."""

import itertools
from collections.abc import Callable

import torch


def whole(rng: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Whole numbers from 1 to 99: a reader can follow them, and in every dtype they are exact."""
    return torch.randint(1, 100, shape, generator=rng).to(dtype)


def integer(rng: torch.Generator, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def built(shape: tuple[int, ...], dtype: torch.dtype, element: Callable) -> torch.Tensor:
    """The tensor whose element at an index is `element(*index)`: one number after the other."""
    result = torch.empty(shape, dtype=dtype)
    for index in itertools.product(*map(range, shape)):
        result[index] = element(*index)
    return result
