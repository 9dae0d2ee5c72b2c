"""Measure what autograd keeps for the backward pass."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Saved:
    """The tensors that were saved: `bytes` of their storages, each once, and how many `tensors`."""

    def __init__(self, known: tuple[torch.Tensor, ...]):
        self.tensors = 0
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._storages: dict[int, torch.UntypedStorage] = {}  # held, so that no address is reused

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for storage in self._storages.values())

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self.tensors += 1
            self._storages[storage._cdata] = storage
        return tensor


@contextmanager
def saved(*known: torch.Tensor) -> Iterator[Saved]:
    """Count the tensors that autograd saves inside; `known`, parameters and inputs, exist anyway and do not count.

    with saved(x, *model.parameters()) as kept:
        loss = model(x).sum()
    kept.bytes
    """
    counts = Saved(known)
    with torch.autograd.graph.saved_tensors_hooks(counts._pack, lambda tensor: tensor):
        yield counts
