"""Numbers and tensors that the checks of this lab draw."""

import torch


def uniform(low: float, high: float, shape, rng) -> torch.Tensor:
    """Float64 numbers in [low, high)."""
    return low + (high - low) * torch.rand(shape, generator=rng, dtype=torch.float64)


def number(low: float, high: float, rng) -> float:
    """A number of two decimals, so that a message can be followed by hand."""
    return round(uniform(low, high, (), rng).item(), 2)
