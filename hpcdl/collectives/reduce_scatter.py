"""Everyone's tensor summed, each rank with one chunk of the sum: the first half of a ring all-reduce."""

import torch

from hpcdl.collectives.chunks import chunks


def reduce_scatter(x: torch.Tensor, comm) -> torch.Tensor:
    """Sum `x` over the ranks into one chunk per rank; returns rank r's, chunk r of `x.view(-1).tensor_split(p)`.

    The chunk is a view of `x`, whose other chunks hold partial sums afterwards. Round the ring, p-1 messages of about
    n/p bytes per rank: (p-1) alpha + (p-1)/p n beta + (p-1)/p n gamma.
    """
    p, rank = comm.size, comm.rank
    pieces = chunks(x, p)
    scratch = torch.empty_like(pieces[0])
    for step in range(1, p):
        target = pieces[(rank - step - 1) % p]
        incoming = scratch[: target.numel()]
        comm.sendrecv(pieces[(rank - step) % p], (rank + 1) % p, incoming, (rank - 1) % p)
        comm.accumulate(target, incoming)
    return pieces[rank]
