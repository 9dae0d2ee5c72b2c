"""One rank's chunks to their ranks: the holder of many hands half of them on, and so does who gets them."""

import torch

from hpcdl.collectives.chunks import chunks
from hpcdl.collectives.halves import branches
from hpcdl.comm import Communicator


def scatter(x: torch.Tensor, comm: Communicator, root: int = 0) -> torch.Tensor:
    """Rank `root`'s chunk r of `x` to rank r; returns this rank's, chunk r of `x.view(-1).tensor_split(p)`.

    The chunk is a view of `x`, which has n bytes on every rank; what its other chunks hold afterwards is left open,
    but for the root's, which stay. A tree of halves (Chan, Heimlich, Purkayastha and van de Geijn 2007, "Collective
    communication: theory, practice, and experience"): p-1 messages, ceil(log2 p) alpha + about (p-1)/p n beta. Then
    `all_gather` makes it a broadcast of fewer bytes. Raises ValueError for a `root` that is no rank.
    """
    for piece, peer, above in branches("scatter", x, comm, root):
        if above:
            comm.send(piece, peer)
        else:
            comm.recv(piece, peer)
    return chunks(x, comm.size)[comm.rank]
