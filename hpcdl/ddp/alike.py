"""Detect ranks that disagree on a number or on their weights, in a sum that every step makes anyway."""

import zlib
from collections.abc import Sequence

import torch

from hpcdl.collectives import broadcast, naive_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.agreement import lines_of
from hpcdl.ddp.guarded import numbers_of

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element
NEARLY = 1e-4  # processors of different makes round differently: weights this close, relatively, count as the same


def digest(x: object) -> int:
    """Return 16 bits that stand for `x` as it is printed."""
    return zlib.crc32(repr(x).encode()) & 0xFFFF


def votes(number: int, counts: bool = True) -> list[float]:
    """Return what a rank adds to three sums for a `number` of 16 bits: count, value, square; zeros abstain."""
    return [1.0, float(number), float(number**2)] if counts else [0.0] * 3


def agree(sums: Sequence[float]) -> bool:
    """Return whether all ranks that voted gave the same number: then its variance is zero."""
    return int(sums[0]) * int(sums[2]) == int(sums[1]) ** 2


class ReplicaComparison:
    """Compare weights that must be the same on all ranks: all elements in steps 1, 2, 4, 8, ..., else one per step.

    The training loop can make them differ: a state loaded by one rank, a learning rate from one rank's loss, an
    optimizer that steps in backward.
    """

    def __init__(self, weights: Sequence[torch.Tensor]):
        self.weights = [x for x in weights if x.numel()]
        self._steps, self._rests = 0, 0  # no comparison before this step: processors round differently

    def votes(self, comm: Communicator) -> list[float]:
        """Return this rank's part of the sum that `require` reads."""
        self._steps += 1
        if self._steps < self._rests or not self.weights or comm.size == 1 or comm.silent:
            return votes(0)
        if not self._steps & (self._steps - 1):
            return votes(digest([int(bits(x).sum(dtype=torch.int64)) for x in self.weights]))
        x = self.weights[self._steps % len(self.weights)]
        return votes(digest(int(bits(x)[self._steps % x.numel()])) if x.device.type == "cpu" else 0)

    def require(self, sums: Sequence[float], comm: Communicator) -> None:
        """Raise ValueError on every rank if a rank's weights differ from rank 0's. Sends nothing where they agree."""
        if agree(sums):
            return
        apart = torch.zeros(comm.size, dtype=torch.int32, device=comm.devices[0])
        found = next((i for i, x in enumerate(self.weights) if _apart(x, comm)), None)
        for x in self.weights[len(self.weights) if found is None else found + 1 :]:
            _apart(x, comm)
        apart[comm.rank] = found is not None
        naive_all_reduce(apart, comm)
        self._rests = 2 * self._steps
        if apart.any():
            rank = int(apart.nonzero()[0])
            (shape,) = lines_of(rank, ["" if found is None else f"{tuple(self.weights[found].shape)}"], comm)
            raise ValueError(
                f"rank {rank} has another parameter of shape {shape} than rank 0: one rank alone changed it, or each "
                "by its own samples, such as a state that one rank loaded, a learning rate from one rank's loss, an "
                "optimizer that steps in a hook, max_norm of an embedding; change weights on all ranks alike, after "
                "synchronizing"
            )


def bits(x: torch.Tensor) -> torch.Tensor:
    """Return the elements of `x` as integers."""
    x = numbers_of(x.detach()).resolve_conj().resolve_neg()
    x = torch.view_as_real(x) if x.is_complex() else x
    return x.contiguous().view(-1).view(INTEGERS[x.element_size()])


def _apart(x: torch.Tensor, comm: Communicator) -> bool:
    """Return whether `x` is not close to rank 0's; every rank calls it."""
    mine = numbers_of(x.detach()).resolve_conj().resolve_neg().contiguous().to(comm.devices[0])
    first = mine.clone()
    broadcast(first, comm)
    scale = float(first.abs().max()) if first.is_floating_point() or first.is_complex() else 0.0
    near = max(NEARLY, 4 * torch.finfo(x.dtype).eps) if scale else NEARLY
    return not torch.allclose(mine, first, rtol=near, atol=near * scale, equal_nan=True)
