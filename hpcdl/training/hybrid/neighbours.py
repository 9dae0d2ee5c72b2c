"""Copies of each rank's part of the state in the next rank's memory, so that a run continues without its disk.

After each step every rank copies the elements that it contributes to the whole state (weights and optimizer states) and
sends the copy to the next rank. If a rank dies, the next one still has its part. If two neighbours die together, only
the checkpoint on the disk has all parts. Gemini (Wang et al., SOSP 2023) keeps checkpoints in other machines' memory.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from hpcdl.collectives import fast_ring_all_reduce
from hpcdl.sharding.together import together
from hpcdl.training.hybrid import checkpoints
from hpcdl.training.hybrid.configuration import Configuration
from hpcdl.training.hybrid.models import build
from hpcdl.training.hybrid.precision import dtype_of
from hpcdl.training.hybrid.whole import WEIGHTS

if TYPE_CHECKING:
    from hpcdl.training.trainer import Trainer

KEPT = 2  # moments: while some ranks copy a step, all still have the one before


class CopyMoment(NamedTuple):
    """When `ranks` ranks copied their parts: after `step` steps, in a training's run number `run`."""

    step: int
    run: int
    ranks: int


class StatePart(NamedTuple):
    """One rank's elements of the state: `places` in the whole model's vector, `values` of each kind, the loss scale."""

    places: torch.Tensor
    values: torch.Tensor
    scale: torch.Tensor | None


Memory = dict[
    CopyMoment, dict[int, StatePart]
]  # of one rank: parts of the last moments, by the rank that contributed them


class Source(NamedTuple):
    """The moment to continue from, and which rank of the next run gives each part."""

    moment: CopyMoment
    givers: dict[int, int]


class NeighbourCopies:
    """Keeps this rank's part and the previous rank's in `memory`; every rank creates one and calls `keep` after each
    step."""

    def __init__(self, trainer: "Trainer", memory: Memory, run: int):
        self.trainer, self.memory, self.run = trainer, memory, run
        comm, self.places = trainer.comm, trainer.whole.places()
        sizes = together(lambda: str(self.places.numel()), comm)
        self.left, self.right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        self.theirs = torch.empty(int(sizes[self.left]), dtype=torch.int64)
        self._exchange(self.places, self.theirs)
        if trainer.done:
            self.keep()

    def keep(self) -> None:
        """Copy this rank's part, and exchange copies with the neighbours."""
        trainer, comm = self.trainer, self.trainer.comm
        kinds = (WEIGHTS, *trainer.states)
        scale = trainer.scale.state()
        values = torch.stack([trainer.whole.part(trainer.values, kind) for kind in kinds])
        theirs = values.new_empty(len(kinds), self.theirs.numel())
        self._exchange(values, theirs)
        parts = {self.left: StatePart(self.theirs, theirs, scale), comm.rank: StatePart(self.places, values, scale)}
        self.memory[CopyMoment(trainer.done, self.run, comm.size)] = parts
        for moment in sorted(self.memory)[:-KEPT]:
            del self.memory[moment]

    def _exchange(self, ours: torch.Tensor, theirs: torch.Tensor) -> None:
        if self.trainer.comm.size > 1:
            self.trainer.comm.sendrecv(ours, self.right, theirs, self.left)


def find(memories: Sequence[Memory], ranks: int) -> tuple[Source | None, list[Memory]]:
    """Return the newest moment whose parts are all in a memory, and the memories of `ranks` ranks.

    Old rank i is new rank i modulo `ranks`: one without a place in the next run passes its parts on. Without such
    a moment, the source is None and the memories are empty.
    """
    held: dict[CopyMoment, dict[int, int]] = {}
    for i, memory in enumerate(memories):
        for moment, parts in memory.items():
            for rank in parts:
                held.setdefault(moment, {}).setdefault(rank, i % ranks)
    whole = [moment for moment, givers in held.items() if len(givers) == moment.ranks]
    found: list[Memory] = [{} for _ in range(ranks)]
    if not whole:
        return None, found
    moment = max(whole)
    for i, memory in enumerate(memories):
        found[i % ranks].setdefault(moment, {}).update(memory.get(moment, {}))
    return Source(moment, held[moment]), found


def resume(trainer: "Trainer", memory: Memory, source: Source) -> None:
    """Give every rank its state from the ranks' memories; every rank calls it."""
    comm, whole = trainer.comm, trainer.whole
    parts = memory.get(source.moment, {})
    ours = {rank: part for rank, part in parts.items() if source.givers[rank] == comm.rank}
    found: dict[str, list[torch.Tensor]] = {}
    for k, kind in enumerate((WEIGHTS, *trainer.states)):
        vector = torch.zeros(whole.numel, dtype=whole.dtype)
        for part in ours.values():
            vector[part.places] = part.values[k]
        fast_ring_all_reduce(vector, comm)
        found[kind] = list(whole.pick(vector))
    scale = ours[0].scale if 0 in ours else None  # None on every rank, except in fp16
    scale = torch.zeros(2, dtype=torch.float64) if scale is None else scale.clone()
    fast_ring_all_reduce(scale, comm)
    trainer.scale.load(scale)
    checkpoints.give(trainer, source.moment.step, found)


def needs(configuration: Configuration) -> tuple[int, int]:
    """Return the bytes that all ranks together send in a step for copies, and the most that they hold."""
    dense = build(configuration.model, configuration.size).dense()
    numel = sum(param.numel() for param in dense.parameters())
    kinds = 1 + len(checkpoints.states_of(configuration.optimizer))
    sent = numel * kinds * dtype_of(configuration.precision).itemsize
    return sent, 2 * (KEPT * sent + numel * torch.int64.itemsize)
