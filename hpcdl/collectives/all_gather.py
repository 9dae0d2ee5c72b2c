"""Each rank's chunk to all: the second half of a ring all-reduce."""

from collections.abc import Sequence

import torch

from hpcdl.collectives.chunks import chunks


def all_gather(x: torch.Tensor, comm) -> None:
    """Overwrite chunk r of `x` with rank r's on every rank, for all r; chunks as in `x.view(-1).tensor_split(p)`.

    Round the ring, p-1 messages of about n/p bytes per rank: (p-1) alpha + (p-1)/p n beta.
    """
    pass_round(chunks(x, comm.size), comm)


def pass_round(pieces: Sequence[torch.Tensor], comm) -> None:
    """Overwrite piece r with rank r's, for all r."""
    p, rank = comm.size, comm.rank
    for step in range(p - 1):
        comm.sendrecv(pieces[(rank - step) % p], (rank + 1) % p, pieces[(rank - step - 1) % p], (rank - 1) % p)
