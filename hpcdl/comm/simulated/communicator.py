"""One rank of the simulated machine."""

from functools import partial

import torch

from hpcdl.comm.base import Background, Communicator
from hpcdl.comm.channels import Channels
from hpcdl.comm.sharing import SharedTensor
from hpcdl.comm.simulated.background import SimulatedBackground
from hpcdl.comm.simulated.machine import SimulatedMachine, SimulatedMessage, copy
from hpcdl.comm.simulated.sharing import SimulatedSharedTensor


class SimulatedComm(Communicator):
    """Rank `rank` of `machine`; `turn` selects the clock: the rank's own (None), or its background's."""

    def __init__(self, machine: SimulatedMachine, rank: int, turn: int | None = None):
        self.machine, self.rank, self.size = machine, rank, machine.p
        self.turn = rank if turn is None else turn
        self._slowness = machine.slowness[rank]

    def clock(self) -> float:
        return self.machine.turns.clocks[self.turn]

    @property
    def channels(self) -> Channels:
        return self.machine.channels[self.rank]

    def _background(self, channel: int) -> Background:
        beside = partial(SimulatedComm, self.machine, self.rank)
        return SimulatedBackground(self, self.turn, self.machine, beside, channel)

    def accumulate(self, out: torch.Tensor, x: torch.Tensor, weight: float = 1.0) -> None:
        start = self.clock()
        super().accumulate(out, x, weight)
        self.machine.turns.advance(self.turn, self.machine.links.gamma * out.nbytes * self._slowness)
        self.machine.trace.record(start, self.clock(), self.rank, "accumulate", -1, out.nbytes)

    def compute(self, seconds: float) -> None:
        if not seconds >= 0:
            raise ValueError(f"rank {self.rank}: compute: seconds is {seconds!r}; work takes 0 or more seconds")
        start = self.clock()
        self.machine.turns.advance(self.turn, seconds * self._slowness)
        self.machine.trace.record(start, self.clock(), self.rank, "compute")

    def _isend(self, op, x, dest, tag):
        message = SimulatedMessage(self, op, "dest", x, dest, tag)
        return self.machine.post(message, (self.rank, dest, tag))

    def _irecv(self, op, out, source, tag):
        message = SimulatedMessage(self, op, "source", out, source, tag)
        return self.machine.post(message, (source, self.rank, tag))

    def _wait(self, op, *requests):
        self.machine.wait(self.turn, op, requests)

    def _wait_any(self, op, requests):
        return self.machine.wait_any(self.turn, op, requests)

    def _broadcast(self, x, root):
        step = self.machine.links.step(self.size, x.nbytes)
        self.machine.collect(self.rank, "broadcast", x, root, partial(_copy_from, root), step)

    def _all_reduce(self, x):
        slowest = max(self.machine.slowness)
        step = self.machine.links.step(self.size, x.nbytes) + x.nbytes * self.machine.links.gamma * slowest
        self.machine.collect(self.rank, "all_reduce", x, None, _sum_everywhere, step)

    def _barrier(self):
        self.machine.collect(self.rank, "barrier", None, None, lambda _: None, self.machine.links.step(self.size, 0))

    def _shared_tensor(self, numel: int, dtype: torch.dtype) -> SharedTensor:
        mine, step = torch.zeros(numel, dtype=dtype), self.machine.links.step(self.size, 0)
        tensor, events = self.machine.collect(self.rank, "shared_tensor", mine, None, lambda all_: (all_[0], []), step)
        return SimulatedSharedTensor(self, tensor, events, self.machine.links.gamma * self._slowness)


def _copy_from(root: int, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        if tensor is not tensors[root]:
            tensor.detach().view(-1).copy_(tensors[root].detach().view(-1))


def _sum_everywhere(tensors: list[torch.Tensor]) -> None:
    total = tensors[0].detach().clone().view(-1)
    for tensor in tensors[1:]:
        total += tensor.detach().view(-1)
    for tensor in tensors:
        copy(tensor, total)
