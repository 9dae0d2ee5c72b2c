"""Tensors concatenated into one vector, with a share for each rank: the base of all ZeRO stages."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch

from hpcdl import collectives
from hpcdl.comm import Communicator, Group


class Shard(NamedTuple):
    """`piece`, flat: the elements `start` to `start + len(piece)` of a tensor of `shape`, in row-major order."""

    piece: torch.Tensor
    start: int
    shape: tuple[int, ...]


class FlatLayout:
    """The positions of tensors of `shapes` in a vector of `numel` elements, and this rank's part of it.

    Chunk i of `vector.tensor_split(p)` belongs to rank (first + i) mod p, so the chunks that are one element longer
    begin at rank `first`. The next vector's begin at rank `after`: over any number of vectors, no rank owns more than
    one element more than another. There is no padding: sent and stored bytes match the formulas exactly.
    """

    def __init__(self, shapes: Sequence[Sequence[int]], comm: Communicator, first: int = 0):
        p = comm.size
        self.shapes = [tuple(shape) for shape in shapes]
        self.sizes = [prod(shape) for shape in self.shapes]
        self.numel = sum(self.sizes)
        self.ranks = [(first + i) % p for i in range(p)]
        self.after = (first + self.numel) % p
        mine, (length, longer) = (comm.rank - first) % p, divmod(self.numel, p)
        self.start = mine * length + min(mine, longer)
        self.stop = self.start + length + (mine < longer)

    def views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors, as views of the vector."""
        return [part.view(shape) for part, shape in zip(vector.split(self.sizes), self.shapes, strict=True)]

    def share(self, vector: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the vector, as a view."""
        return vector[self.start : self.stop]

    def pieces(self, share: torch.Tensor) -> list[Shard]:
        """Return the part of each tensor in this rank's `share`, as views; empty if it holds nothing of a tensor."""
        found, begin = [], 0
        for size, shape in zip(self.sizes, self.shapes, strict=True):
            first, last = (min(max(edge, self.start), self.stop) for edge in (begin, begin + size))
            found.append(
                Shard(share[first - self.start : last - self.start], first - begin if last > first else 0, shape)
            )
            begin += size
        return found

    def all_gather(self, vector: torch.Tensor, comm: Communicator, own: torch.Tensor | None = None) -> None:
        """Fill every rank's vector with all shares; this rank's is `own`, or is already in the vector."""
        group = Group(comm.labelled("parameters"), self.ranks)
        if own is None:
            collectives.all_gather(vector, group)
        else:
            collectives.fast_all_gather(vector, group, own)

    def reduce_scatter(self, vector: torch.Tensor, comm: Communicator, weight: float = 1.0) -> torch.Tensor:
        """Sum `weight * vector` over the ranks and return this rank's share, a view of `vector`; the rest is
        overwritten.

        With weight 0 this rank's values do not count, not even NaN.
        """
        if not weight:
            vector.zero_()
        return collectives.fast_reduce_scatter(vector, Group(comm.labelled("gradients"), self.ranks), weight or 1.0)
