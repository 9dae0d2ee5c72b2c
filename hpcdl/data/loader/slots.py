"""Memory for batches that workers fill and the training reads in place: a few slots, each lent to one user at a time.

The memory belongs to a file descriptor and has no name, so it is freed however a process ends.
"""

import mmap
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np
import torch

from hpcdl.data.loader.shard import ALIGN, Field

# What a slot's first numbers say: who fills it, from which shard, and whether it is no longer needed; then samples.
WORKER, SHARD, DROPPED, NOTES = 0, 1, 2, 3
LENT = 2  # batches that a training holds at a time: the last one while it asks for the next


class SlotLayout:
    """Where a slot holds what: the notes, the samples' numbers, and an array of `capacity` samples for each field."""

    def __init__(self, fields: Sequence[Field], capacity: int):
        self.capacity = capacity
        self.places: list[tuple[Field, int, int]] = []  # each field, where it begins, and bytes of a sample of it
        end = _aligned(8 * (NOTES + capacity))
        for field in fields:
            self.places.append((field, end, field.nbytes))
            end += _aligned(capacity * field.nbytes)
        self.nbytes = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE

    def notes(self, memory: mmap.mmap, slot: int) -> np.ndarray:
        """Return the numbers at the beginning of a slot."""
        return np.frombuffer(memory, np.int64, NOTES + self.capacity, slot * self.nbytes)

    def arrays(self, memory: mmap.mmap, slot: int, count: int) -> dict[str, np.ndarray]:
        """Return the fields of a slot with `count` samples: views of one array, which lives as long as they do."""
        whole = np.frombuffer(memory, np.uint8, self.nbytes, slot * self.nbytes)
        return {
            field.name: whole[offset : offset + count * nbytes].view(field.dtype).reshape(count, *(field.shape or ()))
            for field, offset, nbytes in self.places
        }


class Slots:
    """So many slots in memory that other processes can map by `descriptor`."""

    def __init__(self, layout: SlotLayout, count: int):
        self.layout, self.count = layout, count
        self.descriptor = _nameless()
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, count * layout.nbytes)
        self.memory = mmap.mmap(self.descriptor, count * layout.nbytes)
        self.free = deque(range(count))
        self.lent = 0

    def lend(self, slot: int, count: int) -> dict[str, torch.Tensor]:
        """Return the batch in `slot` without a copy; the slot becomes free with the last of its tensors.

        If a training keeps more than two batches, it gets copies, and the slot is free at once.
        """
        arrays = self.layout.arrays(self.memory, slot, count)
        if self.lent >= LENT:
            batch = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
            self.free.append(slot)
            return batch
        whole = next(iter(arrays.values())).base
        assert whole is not None  # `arrays` makes views
        self.lent += 1
        weakref.finalize(whole, _give_back, weakref.ref(self), slot)
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _give_back(slots: "weakref.ref[Slots]", slot: int) -> None:
    if (mine := slots()) is not None:
        mine.lent -= 1
        mine.free.append(slot)


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("hpcdl-loader")
    with tempfile.TemporaryFile() as file:  # deleted already; its descriptor lives on
        return os.dup(file.fileno())


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN
