"""Recursive doubling: after k exchanges every rank holds the sum of its group of 2^k. No algorithm needs fewer
rounds."""

import torch

from hpcdl.collectives.chunks import weigh
from hpcdl.collectives.fold import fold
from hpcdl.comm import Communicator


def recursive_doubling_all_reduce(x: torch.Tensor, comm: Communicator, weight: float = 1.0) -> None:
    """Sum `weight * x` over the ranks in place: exchange and add with the rank 1, 2, 4, ... away.

    For p = 2^k every rank sends log2 p messages of n bytes: log2 p (alpha + n beta + n gamma); other p: see `fold`
    (Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in MPICH").
    """
    comm.check_tensor("recursive_doubling_all_reduce", "x", x)
    fold(weigh(x, weight), comm, _double)


def _double(x: torch.Tensor, comm: Communicator, q: int) -> None:
    incoming = torch.empty_like(x)
    for distance in (1 << k for k in range(q.bit_length() - 1)):
        partner = comm.rank ^ distance
        comm.sendrecv(x, partner, incoming, partner)
        comm.accumulate(x, incoming)  # a + b here, b + a there: the same bits
