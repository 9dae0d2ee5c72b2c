"""Everyone's tensor summed, each rank with one chunk of the sum: the first half of a ring all-reduce."""

import torch

from hpcdl.collectives.chunks import chunks
from hpcdl.collectives.pipelined import landing, sendrecv_add


def reduce_scatter(x: torch.Tensor, comm) -> torch.Tensor:
    """Sum `x` over the ranks into one chunk per rank; returns rank r's, chunk r of `x.view(-1).tensor_split(p)`.

    The chunk is a view of `x`, whose other chunks hold partial sums afterwards. Round the ring, p-1 messages of about
    n/p bytes per rank: (p-1) alpha + (p-1)/p n beta + (p-1)/p n gamma. Where the machine adds long messages in pieces
    (`comm.segment`), a message is as many as it has pieces, and the additions hide behind them.
    """
    p, rank = comm.size, comm.rank
    pieces = chunks(x, p)
    places = landing(pieces[0], comm)
    for step in range(1, p):
        mine, target = pieces[(rank - step) % p], pieces[(rank - step - 1) % p]
        sendrecv_add(mine, (rank + 1) % p, target, (rank - 1) % p, places, comm)
    return pieces[rank]
