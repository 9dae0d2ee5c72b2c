"""The ring all-reduce: each rank talks to its two neighbours only, and all links work all the time."""

import torch

from hpcdl.collectives.all_gather import pass_round
from hpcdl.collectives.chunks import blocks
from hpcdl.collectives.reduce_scatter import add_round


def ring_all_reduce(x: torch.Tensor, comm, weight: float = 1.0) -> None:
    """Sum `weight * x` over the ranks in place: p-1 steps that add chunks round the ring, p-1 that pass the sums on.

    2(p-1) messages of about n/p bytes per rank: 2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma
    (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations"). Where the machine
    has a best length of messages (`comm.segment`), a longer `x` goes round block by block: the same bytes, and each
    block stays in the processor's cache from its first message to its last. A tensor of `comm.empty` that neighbours
    read where it is needs no blocks; the ranks agree on that in log2 p short messages more.
    """
    parts = blocks(x, comm)
    scratch = torch.empty_like(parts[0][0])
    for pieces in parts:
        add_round(pieces, scratch, comm, weight, back=comm.size == 2)  # one neighbour: it gets the sum at once
        if comm.size > 2:
            pass_round(pieces, comm)
