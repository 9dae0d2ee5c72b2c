"""Functions of one variable for the pictures: each takes a tensor, or a Dual, which gives its exact derivatives."""

import torch

CURVES = {
    "x²": lambda x: x * x,
    "sin x": lambda x: x.sin(),
    "eˣ": lambda x: x.exp(),
    "1 / (1 + e⁻ˣ)": lambda x: 1 / (1 + (-x).exp()),
    "sin 20x": lambda x: (20 * x).sin(),
    "1 / x": lambda x: 1 / x,
    "|x|": lambda x: x.abs(),
}


def point(x: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return a number as a 0-d tensor."""
    return torch.tensor(x, dtype=dtype)


def signed(value: float, digits: int = 3) -> str:
    """Return a number for a sentence, with a true minus sign."""
    return f"{value:.{digits}g}".replace("-", "−")
