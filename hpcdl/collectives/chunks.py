"""A tensor's memory in nearly equal pieces, and its elements times a weight."""

import torch


def chunks(x: torch.Tensor, parts: int) -> tuple[torch.Tensor, ...]:
    """`x`, contiguous, as `parts` flat views of its memory; the first n mod `parts` are one element longer.

    They may be empty: where n < `parts`, the last ones are.
    """
    return x.detach().view(-1).tensor_split(parts)


def weigh(x: torch.Tensor, weight: float) -> torch.Tensor:
    """`weight * x` instead of `x`; returns `x`, without its history in autograd."""
    x = x.detach()
    return x if weight == 1 else x.mul_(weight)
