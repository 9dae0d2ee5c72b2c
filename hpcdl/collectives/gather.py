"""Each rank's chunk to one rank: the reverse of a scatter."""

import torch

from hpcdl.collectives.halves import branches
from hpcdl.comm import Communicator


def gather(x: torch.Tensor, comm: Communicator, root: int = 0) -> None:
    """Overwrite chunk r of rank `root`'s `x` with rank r's, for all r; chunks as in `x.view(-1).tensor_split(p)`.

    `x` has n bytes on every rank; on other ranks it holds some of the chunks afterwards. The tree of `scatter`, from
    its leaves to the root (Chan et al. 2007): p-1 messages, ceil(log2 p) alpha + about (p-1)/p n beta. After
    `reduce_scatter` it completes a reduce that sends fewer bytes. Raises ValueError for a `root` that is not a rank.
    """
    for piece, peer, above in reversed(list(branches("gather", x, comm, root))):
        if above:
            comm.recv(piece, peer)
        else:
            comm.send(piece, peer)
