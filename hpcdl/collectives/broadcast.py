"""One rank's tensor to all: in each round every rank that has it sends it to one that does not."""

import torch

from hpcdl.comm import Communicator


def broadcast(x: torch.Tensor, comm: Communicator, root: int = 0) -> None:
    """Overwrite `x` on every rank with rank `root`'s, along a binomial tree.

    p-1 messages of n bytes in ceil(log2 p) rounds: ceil(log2 p) (alpha + n beta). Raises ValueError for a `root` that
    is not a rank.
    """
    comm.check_tensor("broadcast", "x", x)
    p, distance_from_root = comm.size, root_distance("broadcast", comm, root)
    for distance in (1 << k for k in range((p - 1).bit_length())):
        if distance_from_root < distance and distance_from_root + distance < p:
            comm.send(x, (comm.rank + distance) % p)
        elif distance <= distance_from_root < 2 * distance:
            comm.recv(x, (comm.rank - distance) % p)


def root_distance(op: str, comm: Communicator, root: int) -> int:
    """Return this rank's distance after `root` around the circle of all ranks: 0 for the root itself."""
    return (comm.rank - comm.check_rank(op, "root", root)) % comm.size
