"""Buffers, for example a batch norm's running means: after every step all ranks have rank 0's."""

from collections.abc import Sequence

import torch
from torch import nn

from hpcdl.collectives import broadcast
from hpcdl.comm import Communicator
from hpcdl.ddp.guarded import numbers_of


class BufferBroadcast:
    """Gives all ranks rank 0's buffers of `module` and its submodules, including buffers registered later."""

    def __init__(self, module: nn.Module):
        self.module = module
        self._tables = [inner._buffers for inner in module.modules()]
        self._group()

    def run(self, comm: Communicator) -> None:
        """Overwrite the buffers on every rank with rank 0's."""
        if self._registered != sum(map(len, self._tables)):
            self._group()
        for group in self.groups:
            group.broadcast(comm)

    def _group(self) -> None:
        self.groups = group_buffers(self.module)
        self._registered = sum(map(len, self._tables))


class BufferGroup:
    """Buffers of one dtype on one device, which travel in one message.

    Each buffer is looked up in its module by name in every step, because modules replace their tensors.
    """

    def __init__(self, owners: Sequence[tuple[nn.Module, str]]):
        self.owners = owners
        tensors = self._tensors()
        self.flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        parts = self.flat.split([tensor.numel() for tensor in tensors])
        self.views = [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def broadcast(self, comm: Communicator) -> None:
        """Overwrite the buffers on every rank with rank 0's."""
        if comm.rank == 0:
            _copy(self._tensors(), self.views)
        broadcast_state(self.flat, comm)
        if comm.rank:
            _copy(self.views, self._tensors())

    def _tensors(self) -> list[torch.Tensor]:
        return [stored(getattr(module, name).detach()) for module, name in self.owners]


def group_buffers(module: nn.Module) -> list[BufferGroup]:
    """Group the buffers of `module` and its submodules by dtype and device."""
    alike: dict[tuple, list[tuple[nn.Module, str]]] = {}
    for path, buffer in module.named_buffers():
        owner, _, name = path.rpartition(".")
        alike.setdefault((buffer.dtype, buffer.device), []).append((module.get_submodule(owner), name))
    return [BufferGroup(owners) for owners in alike.values()]


def broadcast_state(x: torch.Tensor, comm: Communicator) -> None:
    """Overwrite `x` on every rank with rank 0's, whatever its strides and device."""
    x = stored(numbers_of(x))
    held = x.resolve_conj().resolve_neg()
    message = held.to(comm.devices[0]).contiguous() if x.device.type not in comm.devices else held.contiguous()
    broadcast(message, comm)
    if message is not x:
        x.copy_(message)


def stored(x: torch.Tensor) -> torch.Tensor:
    """Return `x` without the repetitions of an expanded tensor: each element of its memory once."""
    if all(stride or size < 2 for size, stride in zip(x.shape, x.stride(), strict=True)):
        return x
    return x[tuple(slice(None) if stride else slice(0, 1) for stride in x.stride())]


def _copy(sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
