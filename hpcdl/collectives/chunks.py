"""A tensor's memory in nearly equal pieces, and its elements times a weight."""

import torch


def chunks(x: torch.Tensor, parts: int) -> tuple[torch.Tensor, ...]:
    """Split contiguous `x` into `parts` flat views of its memory; the first n mod `parts` are one element longer.

    If n < `parts`, the last ones are empty.
    """
    return x.detach().view(-1).tensor_split(parts)


def weigh(x: torch.Tensor, weight: float) -> torch.Tensor:
    """Multiply `x` by `weight` in place; return `x` detached from autograd."""
    x = x.detach()
    return x if weight == 1 else x.mul_(weight)
