"""A tensor's memory in nearly equal pieces."""

import torch

from hpcdl.collectives.recursive_doubling import recursive_doubling_all_reduce


def chunks(x: torch.Tensor, parts: int) -> tuple[torch.Tensor, ...]:
    """`x` as `parts` flat views of its memory; the first n mod `parts` are one element longer, and they may be empty.

    Raises ValueError where `x` is not contiguous.
    """
    if not x.is_contiguous():
        raise ValueError(f"x of shape {tuple(x.shape)} is not contiguous; pass x.contiguous() and copy the result back")
    return x.detach().view(-1).tensor_split(parts)


def blocks(x: torch.Tensor, comm) -> list[tuple[torch.Tensor, ...]]:
    """`x` in blocks, each as one chunk per rank: as few as there can be with chunks of up to `comm.segment` bytes.

    One block where the machine has no such limit, or where every rank lends its `x`: what is read where it lies is
    fetched from memory once, however long it is.
    """
    p = comm.size
    count = max(1, -(-x.nbytes // (p * comm.segment))) if comm.segment else 1
    if count > 1 and _all_lend(x, comm):
        count = 1
    pieces = chunks(x, count * p)
    return [pieces[i : i + p] for i in range(0, len(pieces), p)]


def _all_lend(x: torch.Tensor, comm) -> bool:
    """What all ranks agree on, as each knows its own `x` only: they must cut theirs alike."""
    mine = comm.lends(x)
    if mine is None:
        return False
    lending = torch.tensor([int(mine)])
    recursive_doubling_all_reduce(lending, comm)
    return lending.item() == comm.size
