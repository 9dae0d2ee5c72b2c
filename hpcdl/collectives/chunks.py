"""A tensor's memory in nearly equal pieces."""

import torch


def chunks(x: torch.Tensor, parts: int) -> tuple[torch.Tensor, ...]:
    """`x` as `parts` flat views of its memory; the first n mod `parts` are one element longer, and they may be empty.

    Raises ValueError where `x` is not contiguous.
    """
    if not x.is_contiguous():
        raise ValueError(f"x of shape {tuple(x.shape)} is not contiguous; pass x.contiguous() and copy the result back")
    return x.detach().view(-1).tensor_split(parts)


def blocks(x: torch.Tensor, comm) -> list[tuple[torch.Tensor, ...]]:
    """`x` in blocks, each as one chunk per rank: as few as there can be with chunks of up to `comm.segment` bytes.

    One block where the machine has no such limit.
    """
    p = comm.size
    count = max(1, -(-x.nbytes // (p * comm.segment))) if comm.segment else 1
    pieces = chunks(x, count * p)
    return [pieces[i : i + p] for i in range(0, len(pieces), p)]
