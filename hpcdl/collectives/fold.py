"""Algorithms for powers of two, on any number of ranks."""

from collections.abc import Callable

import torch

from hpcdl.comm import Communicator


def fold(x: torch.Tensor, comm: Communicator, core: Callable[[torch.Tensor, Communicator, int], None]) -> None:
    """Call `core(x, comm, q)` on the first q ranks, q the largest power of two up to p, and include the other ranks'
    data.

    Each rank from q on gives its `x` to rank - q first and gets the sum at the end. They add 2(p-q) messages of n
    bytes, all pairs at once: 2 alpha + 2 n beta + n gamma (Thakur, Rabenseifner and Gropp 2005, "Optimization of
    collective communication operations in MPICH").
    """
    rank, q = comm.rank, 1 << (comm.size.bit_length() - 1)
    if rank >= q:
        comm.send(x, rank - q)
        comm.recv(x, rank - q)
        return
    partner = rank + q
    if partner < comm.size:
        incoming = torch.empty_like(x)
        comm.recv(incoming, partner)
        comm.accumulate(x, incoming)
    core(x, comm, q)
    if partner < comm.size:
        comm.send(x, partner)
