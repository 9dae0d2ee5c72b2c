"""Everyone's tensor summed, each rank with one chunk of the sum: the first half of a ring all-reduce."""

from collections.abc import Sequence

import torch

from hpcdl.collectives.chunks import chunks


def reduce_scatter(x: torch.Tensor, comm) -> torch.Tensor:
    """Sum `x` over the ranks into one chunk per rank; returns rank r's, chunk r of `x.view(-1).tensor_split(p)`.

    The chunk is a view of `x`, whose other chunks hold partial sums afterwards. Round the ring, p-1 messages of about
    n/p bytes per rank: (p-1) alpha + (p-1)/p n beta + (p-1)/p n gamma.
    """
    pieces = chunks(x, comm.size)
    add_round(pieces, torch.empty_like(pieces[0]), comm)
    return pieces[comm.rank]


def add_round(
    pieces: Sequence[torch.Tensor], scratch: torch.Tensor, comm, weight: float = 1.0, back: bool = False
) -> None:
    """Sum `weight` * piece r over the ranks on rank r, for all r; messages may arrive in `scratch`, as long as any.

    What is added to is weighted in the same pass over memory; only the piece that leaves first needs one of its own.
    With `back` on two ranks, each gets the other's sum too, and the machine weights.
    """
    p, rank = comm.size, comm.rank
    if weight != 1 and not back:
        pieces[rank - 1].mul_(weight)
    for step in range(1, p):
        mine, target = pieces[(rank - step) % p], pieces[(rank - step - 1) % p]
        arriving = scratch if scratch.numel() == target.numel() else scratch[: target.numel()]  # a view costs 1 us
        comm.sendrecv_add(mine, (rank + 1) % p, target, (rank - 1) % p, arriving, weight, back=back)
