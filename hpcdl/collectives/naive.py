"""The centralized all-reduce: everything to rank 0, and back. Rank 0's network card carries it all."""

import torch

from hpcdl.collectives.chunks import weigh
from hpcdl.comm import Communicator


def naive_all_reduce(x: torch.Tensor, comm: Communicator, weight: float = 1.0) -> None:
    """Sum `weight * x` over the ranks in place: rank 0 receives from each in turn, adds, and sends the sum to each.

    2(p-1) messages of n bytes, one after the other: 2(p-1)(alpha + n beta) + (p-1) n gamma.
    """
    comm.check_tensor("naive_all_reduce", "x", x)
    x = weigh(x, weight)
    if comm.rank == 0:
        incoming = torch.empty_like(x)
        for source in range(1, comm.size):
            comm.recv(incoming, source)
            comm.accumulate(x, incoming)
        for dest in range(1, comm.size):
            comm.send(x, dest)
    else:
        comm.send(x, 0)
        comm.recv(x, 0)
