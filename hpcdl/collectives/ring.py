"""The ring all-reduce: each rank talks to its two neighbours only, and all links work all the time."""

import torch

from hpcdl.collectives.all_gather import all_gather
from hpcdl.collectives.reduce_scatter import reduce_scatter
from hpcdl.comm import Communicator


def ring_all_reduce(x: torch.Tensor, comm: Communicator, weight: float = 1.0) -> None:
    """Sum `weight * x` over the ranks in place: p-1 steps that add chunks round the ring, p-1 that pass the sums on.

    2(p-1) messages of about n/p bytes per rank: 2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma
    (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
    """
    comm.check_tensor("ring_all_reduce", "x", x)
    reduce_scatter(x, comm, weight)
    all_gather(x, comm)
