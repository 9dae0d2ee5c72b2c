"""The tree of `scatter` and `gather`: one rank holds several ranks' chunks, halved again and again."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from hpcdl.collectives.chunks import chunks
from hpcdl.comm import Communicator


class Branch(NamedTuple):
    """A rank's part in one level: `piece` of x, all chunks of one half, passes between it and `peer`.

    `above`: it is nearer to the root, and the half holds the chunks of its peer and of the ranks below the peer.
    """

    piece: torch.Tensor
    peer: int
    above: bool


def branches(op: str, x: torch.Tensor, comm: Communicator, root: int) -> Iterator[Branch]:
    """Return this rank's part in each level, from the root down: a holder sends the half without itself to that half's
    first rank.

    The chunks of a half are contiguous in memory, so each half is one message, for any root and any number of ranks.
    """
    comm.check_tensor(op, "x", x)
    holder, first, last, rank = comm.check_rank(op, "root", root), 0, comm.size, comm.rank
    x, starts = x.detach().view(-1), _starts(x, comm.size)
    while last - first > 1:
        middle = (first + last + 1) // 2
        near, far = ((first, middle), (middle, last)) if holder < middle else ((middle, last), (first, middle))
        if rank in (holder, far[0]):
            piece = x[starts[far[0]] : starts[far[1]]]
            yield Branch(piece, far[0] if rank == holder else holder, rank == holder)
        if far[0] <= rank < far[1]:
            near, holder = far, far[0]
        first, last = near


def _starts(x: torch.Tensor, p: int) -> list[int]:
    """Return where each rank's chunk begins, and the end of the last."""
    starts = [0]
    for chunk in chunks(x, p):
        starts.append(starts[-1] + chunk.numel())
    return starts
