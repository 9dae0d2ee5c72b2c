"""One rank's chunks to their ranks: a holder of many passes half of them on, and each receiver does the same."""

import torch

from hpcdl.collectives.chunks import chunks
from hpcdl.collectives.halves import branches
from hpcdl.comm import Communicator


def scatter(x: torch.Tensor, comm: Communicator, root: int = 0) -> torch.Tensor:
    """Send chunk r of rank `root`'s `x` to rank r; return this rank's, chunk r of `x.view(-1).tensor_split(p)`.

    The chunk is a view of `x`, which has n bytes on every rank; the content of the other chunks is undefined
    afterwards, except on the root, where it stays. A tree of halves (Chan, Heimlich, Purkayastha and van de Geijn 2007,
    "Collective communication: theory, practice, and experience"): p-1 messages, ceil(log2 p) alpha + about (p-1)/p n
    beta. With `all_gather` it forms a broadcast that sends fewer bytes. Raises ValueError for a `root` that is not a
    rank.
    """
    for piece, peer, above in branches("scatter", x, comm, root):
        if above:
            comm.send(piece, peer)
        else:
            comm.recv(piece, peer)
    return chunks(x, comm.size)[comm.rank]
