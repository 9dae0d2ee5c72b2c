"""The ring all-reduce: each rank talks to its two neighbours only, and all links work all the time."""

import torch


def ring_all_reduce(x: torch.Tensor, comm) -> None:
    """Sum `x` over the ranks in place: p-1 steps that add chunks round the ring, p-1 that pass the sums on.

    2(p-1) messages of about n/p bytes per rank: 2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma
    (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
    """
    p, rank = comm.size, comm.rank
    after, before = (rank + 1) % p, (rank - 1) % p
    chunks = x.detach().view(-1).tensor_split(p)  # the first n mod p are one element longer
    scratch = torch.empty_like(chunks[0])
    for step in range(p - 1):
        target = chunks[(rank - step - 1) % p]
        incoming = scratch[: target.numel()]
        comm.sendrecv(chunks[(rank - step) % p], after, incoming, before)
        comm.accumulate(target, incoming)
    for step in range(p - 1):
        comm.sendrecv(chunks[(rank - step + 1) % p], after, chunks[(rank - step) % p], before)
