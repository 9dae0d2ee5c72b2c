"""How replicas share gradients and optimizer states: DDP, ZeRO-1 to -3, or a single replica, behind one interface.

Each replica's gradient counts the same, whatever its number of samples: the caller scales its loss.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.ddp import DistributedDataParallel
from hpcdl.parallel import Layers, TransformerBlock
from hpcdl.sharding import FullyShardedDataParallel, Shard, ShardedOptimizer

Make = Callable[[list], torch.optim.Optimizer]
SUMMED = 2**16  # elements whose squares float32 adds with an error of about 1e-7
TINY = 1e-30  # below, float32 loses digits of single squares


class Replicas(ABC):
    """The replicas of `chunks`, this stage's layers, which take a step together.

    Call `modules` instead of the chunks. `optimizer` steps `shards()`: this rank's part of each parameter of the
    chunks, in order.
    """

    modules: list[nn.Module]
    optimizer: torch.optim.Optimizer

    def chunk(self, module: nn.Module) -> Layers:
        """Return one of `modules` for a pipeline."""
        return Layers(module)

    def adding(self) -> AbstractContextManager:
        """Accumulate several backward passes inside the block, and send them in `reduce`; without it, the only pass
        sends them."""
        return nullcontext()

    @abstractmethod
    def reduce(self) -> None:
        """Make the gradient of each shard the mean over the replicas."""

    @abstractmethod
    def shards(self) -> list[Shard]: ...

    def step(self) -> None:
        """Update the weights, and drop the gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def skip(self) -> None:
        """Leave the weights as they are, and drop the gradients."""
        self.optimizer.zero_grad()

    def loaded(self) -> None:  # noqa: B027 - most have nothing to do
        """Notice that the values of `shards()` have been replaced."""


class Alone(Replicas):
    """One replica: nothing is shared."""

    def __init__(self, chunks: Sequence[nn.Module], comm: Communicator, make: Make):
        self.modules = list(chunks)
        self.params = [param for chunk in chunks for param in chunk.parameters()]
        self.optimizer = make(self.params)

    def reduce(self) -> None:
        """Leave the gradients unchanged."""

    def shards(self) -> list[Shard]:
        return [Shard(param, 0, tuple(param.shape)) for param in self.params]


class Repeated(Alone):
    """DDP: every replica has everything."""

    def __init__(self, chunks: Sequence[nn.Module], comm: Communicator, make: Make, overlap: bool):
        super().__init__(chunks, comm, make)
        self._ddp = [DistributedDataParallel(chunk, comm, overlap=overlap, samples=_one) for chunk in chunks]
        self.modules = list(self._ddp)

    def chunk(self, module: nn.Module) -> Layers:
        return Layers(module, replicated=True)

    def adding(self) -> AbstractContextManager:
        return _all(ddp.no_sync() for ddp in self._ddp)

    def reduce(self) -> None:
        for ddp in self._ddp:
            ddp.synchronize()


class ShardedReplicas(Replicas):
    """ZeRO-1 and -2: optimizer states are sharded, and at stage 2 also gradients."""

    def __init__(self, chunks: Sequence[nn.Module], comm: Communicator, make: Make, stage: int):
        self.modules = list(chunks)
        self.optimizer = self._sharded = ShardedOptimizer(
            [param for chunk in chunks for param in chunk.parameters()], comm, make, stage
        )

    def adding(self) -> AbstractContextManager:
        return self._sharded.adding()

    def reduce(self) -> None:
        self._sharded.reduce()

    def shards(self) -> list[Shard]:
        return list(self._sharded.shards().values())

    def loaded(self) -> None:
        self._sharded.gather()


class FullySharded(Replicas):
    """ZeRO-3: weights are sharded, too. A schedule's B is the whole backward pass and W is empty: weights are gathered
    only once."""

    def __init__(self, chunks: Sequence[nn.Module], comm: Communicator, make: Make, ahead: bool):
        self._names = [[name for name, _ in chunk.named_parameters()] for chunk in chunks]
        self._fsdp = [
            FullyShardedDataParallel(chunk, comm, (TransformerBlock,), ahead, samples=_one) for chunk in chunks
        ]
        self.modules = list(self._fsdp)
        self.optimizer = make([param for fsdp in self._fsdp for param in fsdp.parameters()])

    def chunk(self, module: nn.Module) -> Layers:
        return _WholeLayers(module, replicated=True)

    def adding(self) -> AbstractContextManager:
        return _all(fsdp.no_sync() for fsdp in self._fsdp)

    def reduce(self) -> None:
        for fsdp in self._fsdp:
            fsdp.synchronize()

    def shards(self) -> list[Shard]:
        found: list[Shard] = []
        for fsdp, names in zip(self._fsdp, self._names, strict=True):
            shards = fsdp.shards()
            found.extend(shards[name] for name in names)
        return found


class _WholeLayers(Layers):
    """Layers that free their weights after B, so B also does W."""

    def backward_input(self, k: int, dy: torch.Tensor) -> torch.Tensor | None:
        return self.backward(k, dy)


def share_among(comm: Communicator, chunks: Sequence[nn.Module], make: Make, sharding: int, once: bool) -> Replicas:
    """Return the replicas on `comm`'s ranks, by ZeRO's stage; `once`: one backward pass per step, which sends
    gradients.

    A single replica shares nothing, whatever the stage.
    """
    if comm.size == 1:
        return Alone(chunks, comm, make)
    if sharding == 0:
        return Repeated(chunks, comm, make, overlap=once)
    if sharding == 3:
        return FullySharded(chunks, comm, make, ahead=once)
    return ShardedReplicas(chunks, comm, make, sharding)


def squares(gradients: Sequence[torch.Tensor]) -> float:
    """Return the sum of all squares, for float32 to 1e-6; float64 only helps where float32 has no range left."""
    parts = [part for g in gradients for part in ((g,) if g.numel() <= SUMMED else g.flatten().split(SUMMED))]
    found = 0.0
    for dtype in (None, torch.float64) if parts else ():
        found = sum(norm * norm for norm in torch.stack(torch._foreach_norm(parts, 2, dtype=dtype)).tolist())
        if TINY < found < math.inf:
            break
    return found


def _one(*inputs: torch.Tensor) -> int:
    """Return 1: every forward pass counts the same on all replicas."""
    return 1


def _all(contexts: Iterator[AbstractContextManager]) -> ExitStack:
    stack = ExitStack()
    for context in contexts:
        stack.enter_context(context)
    return stack
