"""One rank's tensor to all: in each round those who have it tell as many who do not."""

import torch


def broadcast(x: torch.Tensor, comm, root: int = 0) -> None:
    """Overwrite `x` on every rank with rank `root`'s, along a binomial tree.

    p-1 messages of n bytes in ceil(log2 p) rounds: ceil(log2 p) (alpha + n beta).
    """
    p, place = comm.size, place_of(comm, root)
    for distance in (1 << k for k in range((p - 1).bit_length())):
        if place < distance and place + distance < p:
            comm.send(x, (comm.rank + distance) % p)
        elif distance <= place < 2 * distance:
            comm.recv(x, (comm.rank - distance) % p)


def place_of(comm, root: int) -> int:
    """This rank counted from the root, whose place is 0."""
    if not 0 <= root < comm.size:
        raise ValueError(f"rank {comm.rank}: root is {root}; ranks are 0 to {comm.size - 1}")
    return (comm.rank - root) % comm.size
