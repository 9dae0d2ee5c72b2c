"""The two halves of the ring all-reduce as separate collectives, by the machine's fastest operations: see
`fast_ring`."""

import torch

from hpcdl.collectives.chunks import chunks
from hpcdl.collectives.fast_ring import add_round, rounds
from hpcdl.comm import Communicator


def fast_reduce_scatter(x: torch.Tensor, comm: Communicator, weight: float = 1.0) -> torch.Tensor:
    """Sum `weight * x` into one chunk per rank and return rank r's, as `reduce_scatter` does.

    Arriving data are added in place, without a copy.
    """
    comm.check_tensor("reduce_scatter", "x", x)
    pieces_of_rounds = rounds(x, comm)
    scratch = torch.empty_like(pieces_of_rounds[0][0])
    for pieces in pieces_of_rounds:
        add_round(pieces, scratch, comm, weight)
    return chunks(x, comm.size)[comm.rank]


def fast_all_gather(x: torch.Tensor, comm: Communicator, own: torch.Tensor) -> None:
    """Overwrite chunk r of `x` with rank r's `own` on every rank, for all r: an `all_gather` from separate memory.

    `own` is sent directly if it has the dtype of `x`; if it is in memory from `comm.empty`, the neighbour copies it
    from there.
    """
    comm.check_tensor("all_gather", "x", x)
    p, rank, pieces = comm.size, comm.rank, chunks(x, comm.size)
    pieces[rank].copy_(own)
    first = own if own.dtype == x.dtype else pieces[rank]
    for step in range(p - 1):
        given, taken = pieces[(rank - step) % p], pieces[(rank - step - 1) % p]
        comm.sendrecv(given if step else first, (rank + 1) % p, taken, (rank - 1) % p)
