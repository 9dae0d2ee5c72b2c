"""Random inputs that the checks of several labs draw, and the precisions that they draw them in."""

import torch

F32, F64 = torch.float32, torch.float64


def normal(rng: torch.Generator, *shape: int, dtype: torch.dtype = F64) -> torch.Tensor:
    """Standard normal numbers, drawn in float64 whatever their dtype, so that one seed gives the same ones in each."""
    return torch.randn(*shape, generator=rng, dtype=F64).to(dtype)


def whole_number(rng, low: int, high: int) -> int:
    """A number from `low` to `high`, both of them included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def odd_seconds(rng) -> float:
    """Between 1/4 and 1 of a second, a multiple of none that is round; sums of its multiples are exact."""
    return (2 * whole_number(rng, 2**17, 2**19 - 1) + 1) / 2**20
