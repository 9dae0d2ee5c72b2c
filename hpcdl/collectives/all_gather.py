"""Each rank's chunk to all: the second half of a ring all-reduce."""

import torch

from hpcdl.collectives.chunks import chunks
from hpcdl.comm import Communicator


def all_gather(x: torch.Tensor, comm: Communicator) -> None:
    """Overwrite chunk r of `x` with rank r's on every rank, for all r; chunks as in `x.view(-1).tensor_split(p)`.

    Round the ring, p-1 messages of about n/p bytes per rank: (p-1) alpha + (p-1)/p n beta.
    """
    comm.check_tensor("all_gather", "x", x)
    p, rank, pieces = comm.size, comm.rank, chunks(x, comm.size)
    for step in range(p - 1):
        given, taken = pieces[(rank - step) % p], pieces[(rank - step - 1) % p]
        comm.sendrecv(given, (rank + 1) % p, taken, (rank - 1) % p)
