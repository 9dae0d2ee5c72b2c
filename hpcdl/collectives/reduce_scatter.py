"""All ranks' tensors summed, with one chunk of the sum on each rank: the first half of a ring all-reduce."""

import torch

from hpcdl.collectives.chunks import chunks, weigh
from hpcdl.comm import Communicator


def reduce_scatter(x: torch.Tensor, comm: Communicator, weight: float = 1.0) -> torch.Tensor:
    """Sum `weight * x` into one chunk per rank; returns rank r's, chunk r of `x.view(-1).tensor_split(p)`.

    The chunk is a view of `x`, whose other chunks hold partial sums afterwards. Round the ring, p-1 messages of about
    n/p bytes per rank: (p-1) alpha + (p-1)/p n beta + (p-1)/p n gamma.
    """
    comm.check_tensor("reduce_scatter", "x", x)
    p, rank, pieces = comm.size, comm.rank, chunks(x, comm.size)
    incoming = torch.empty_like(pieces[0])
    weigh(pieces[rank - 1], weight)  # it is sent first; the others are weighted when data are added to them
    for step in range(1, p):
        given, target = pieces[(rank - step) % p], pieces[(rank - step - 1) % p]
        arrived = incoming[: target.numel()]
        comm.sendrecv(given, (rank + 1) % p, arrived, (rank - 1) % p)
        comm.accumulate(target, arrived, weight)
    return pieces[rank]
