"""A shared tensor in virtual time: each access of an element is an event, and other ranks' accesses may come between
two."""

from typing import TYPE_CHECKING

import torch

from hpcdl.comm.sharing import Access, SharedTensor

if TYPE_CHECKING:
    from hpcdl.comm.simulated.communicator import SimulatedComm


class SimulatedSharedTensor(SharedTensor):
    """One rank's view of `tensor` and its log `events`, which all ranks share; `gamma` is this rank's, per byte."""

    def __init__(self, comm: "SimulatedComm", tensor: torch.Tensor, events: list[Access], gamma: float):
        super().__init__(comm, tensor)
        self.events, self._comm, self._seconds = events, comm, gamma * tensor.itemsize

    def _read(self, elements: torch.Tensor) -> torch.Tensor:
        found = torch.empty(elements.numel(), dtype=self.tensor.dtype)
        for place, element in enumerate(elements.tolist()):
            found[place] = self._load(element)
        return found

    def _add(self, elements: torch.Tensor, values: torch.Tensor) -> None:
        for element, value in zip(elements.tolist(), values, strict=True):
            self._store(element, self._load(element) + value)

    def _write(self, elements: torch.Tensor, values: torch.Tensor) -> None:
        for element, value in zip(elements.tolist(), values, strict=True):
            self._store(element, value)

    def _load(self, element: int) -> torch.Tensor:
        self._pass_time("read")
        value = self.tensor[element].clone()
        self._log("read", element)
        return value

    def _store(self, element: int, value: torch.Tensor) -> None:
        self._pass_time("write")
        self.tensor[element] = value
        self._log("write", element)

    def _pass_time(self, op: str) -> None:
        start, machine = self._comm.clock(), self._comm.machine
        machine.turns.step(self._comm.turn, self._seconds)
        machine.trace.record(start, self._comm.clock(), self._rank, op, -1, self.tensor.itemsize)

    def _log(self, op: str, element: int) -> None:
        self.events.append(Access(self._comm.clock(), self._rank, op, element, self.tensor[element].item()))
