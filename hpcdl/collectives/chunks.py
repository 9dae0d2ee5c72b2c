"""A tensor's memory in nearly equal pieces, one per rank."""

import torch


def chunks(x: torch.Tensor, parts: int) -> tuple[torch.Tensor, ...]:
    """`x` as `parts` flat views of its memory; the first n mod `parts` are one element longer, and they may be empty.

    Raises ValueError where `x` is not contiguous.
    """
    if not x.is_contiguous():
        raise ValueError(f"x of shape {tuple(x.shape)} is not contiguous; pass x.contiguous() and copy the result back")
    return x.detach().view(-1).tensor_split(parts)
