"""Tensors one after another in one vector, of which every rank owns a share: what all stages of ZeRO have in common."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch

from hpcdl import collectives
from hpcdl.comm import Communicator, Group


class Shard(NamedTuple):
    """`piece`, flat: the elements `start` to `start + len(piece)` of a tensor of `shape`, counted row by row."""

    piece: torch.Tensor
    start: int
    shape: tuple[int, ...]


class Layout:
    """Where tensors of `shapes` lie in a vector of `numel` elements, and which part of it is this rank's.

    Chunk i of `vector.tensor_split(p)` belongs to rank (first + i) mod p, so that the chunks of one element more begin
    with rank `first`. The next vector's begin with rank `after`: of any number of vectors together, no rank owns more
    than one element more than another. No element is padding: what travels and what is kept are the formulas' bytes.
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
        """The tensors, as views of the vector."""
        return [part.view(shape) for part, shape in zip(vector.split(self.sizes), self.shapes, strict=True)]

    def share(self, vector: torch.Tensor) -> torch.Tensor:
        """This rank's part of the vector, as a view."""
        return vector[self.start : self.stop]

    def pieces(self, share: torch.Tensor) -> list[Shard]:
        """What `share`, this rank's, holds of each tensor, as views; empty where it holds none of it."""
        found, begin = [], 0
        for size, shape in zip(self.sizes, self.shapes, strict=True):
            first, last = (min(max(edge, self.start), self.stop) for edge in (begin, begin + size))
            found.append(
                Shard(share[first - self.start : last - self.start], first - begin if last > first else 0, shape)
            )
            begin += size
        return found

    def all_gather(self, vector: torch.Tensor, comm: Communicator, own: torch.Tensor | None = None) -> None:
        """Fill every rank's vector with the shares of all; this rank's is `own`, or in the vector already."""
        group = Group(comm, self.ranks)
        if own is None:
            collectives.all_gather(vector, group)
        else:
            collectives.fast_all_gather(vector, group, own)

    def reduce_scatter(self, vector: torch.Tensor, comm: Communicator, weight: float = 1.0) -> torch.Tensor:
        """Sum `weight * vector` over the ranks; this rank's share of the sum, a view of `vector`, whose rest is lost.

        With weight 0 nothing of this rank's counts, not even NaN.
        """
        if not weight:
            vector.zero_()
        return collectives.fast_reduce_scatter(vector, Group(comm, self.ranks), weight or 1.0)
