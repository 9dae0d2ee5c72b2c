"""All ranks' tensors summed on one rank: the reverse of a broadcast. In each round half of the remaining ranks send
theirs away."""

import torch

from hpcdl.collectives.broadcast import root_distance
from hpcdl.comm import Communicator


def reduce(x: torch.Tensor, comm: Communicator, root: int = 0) -> None:
    """Sum `x` over the ranks into rank `root`'s `x`; on the other ranks `x` holds partial sums afterwards.

    p-1 messages of n bytes in ceil(log2 p) rounds: ceil(log2 p) (alpha + n beta + n gamma). Raises ValueError for a
    `root` that is not a rank.
    """
    comm.check_tensor("reduce", "x", x)
    p, distance_from_root = comm.size, root_distance("reduce", comm, root)
    x, incoming = x.detach(), torch.empty_like(x)
    for distance in (1 << k for k in reversed(range((p - 1).bit_length()))):
        if distance_from_root < distance and distance_from_root + distance < p:
            comm.recv(incoming, (comm.rank + distance) % p)
            comm.accumulate(x, incoming)
        elif distance <= distance_from_root < 2 * distance:
            comm.send(x, (comm.rank - distance) % p)
