"""Sharded training by torch and by DeepSpeed, and what all competitors of the benchmark `sharding` have in common."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from hpcdl.comm.base import Communicator
from hpcdl.nn.decoder import DecoderBlock

WIDTH, LAYERS = 1024, 4


class ShardedNetwork(NamedTuple):
    """How a model is built, which layers are gathered whole, and the shape of each rank's batch."""

    make: Callable[[], nn.Module]
    layer: type[nn.Module]
    batch: tuple[int, ...]


class ShardingCompetitor:
    """A model, what makes the mean gradient and takes a step; `known` are what the memory meter is told of."""

    def __init__(self, net: nn.Module, reduce: Callable[[], None], update: Callable[[], None], known: list):
        self.net, self.reduce, self.update, self.known = net, reduce, update, known
        self.backward: Callable[[torch.Tensor], Any] = torch.Tensor.backward

    def step(self, x: torch.Tensor) -> None:
        self.backward(self.net(x).square().mean())
        self.reduce()
        self.update()


def mlp() -> nn.Module:
    """Four layers of 1024 x 1024."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def transformer() -> nn.Module:
    """Four blocks of 256 numbers a token and four heads."""
    torch.manual_seed(0)
    return nn.Sequential(*(DecoderBlock(256, 4) for _ in range(4)))


NETWORKS = {
    "MLP": ShardedNetwork(mlp, nn.Linear, (32, WIDTH)),
    "transformer": ShardedNetwork(transformer, DecoderBlock, (2, 16, 256)),
}


def adam(params: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(params, lr=1e-3)


# They are imported where they are used: torch's modules warn of their own parts.


def redundancy(comm: Communicator, network: ShardedNetwork) -> ShardingCompetitor:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(network.make())
    return by_torch(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3))


def fsdp_1(comm: Communicator, network: ShardedNetwork) -> ShardingCompetitor:
    from torch.distributed import fsdp
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    net = fsdp.FullyShardedDataParallel(
        network.make(), auto_wrap_policy=ModuleWrapPolicy({network.layer}), device_id=torch.device("cpu")
    )
    return by_torch(net, adam(net.parameters()))


def fsdp_2(comm: Communicator, network: ShardedNetwork) -> ShardingCompetitor:
    from torch.distributed import fsdp

    net = network.make()
    mesh = torch.distributed.init_device_mesh("cpu", (comm.size,))
    for layer in net.children():
        if isinstance(layer, network.layer):
            fsdp.fully_shard(layer, mesh=mesh)
    fsdp.fully_shard(net, mesh=mesh)
    return by_torch(net, adam(net.parameters()))


def deepspeed(stage: int) -> Callable[[Communicator, ShardedNetwork], ShardingCompetitor]:
    def build(comm: Communicator, network: ShardedNetwork) -> ShardingCompetitor:
        import deepspeed

        model = network.make()
        config = {"train_micro_batch_size_per_gpu": network.batch[0], "zero_optimization": {"stage": stage}}
        config |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
        config["gradient_clipping"] = 0.0  # else DeepSpeed clips by a norm of 1: more work than the others have
        net, *_ = deepspeed.initialize(model=model, optimizer=adam(model.parameters()), config=config)
        competitor = ShardingCompetitor(net, lambda: None, net.step, [])
        competitor.backward = net.backward
        return competitor

    return build


def by_torch(net: nn.Module, optimizer: torch.optim.Optimizer) -> ShardingCompetitor:
    return ShardingCompetitor(net, lambda: None, update_and_forget(optimizer), [net, optimizer])


def update_and_forget(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def update():
        optimizer.step()
        optimizer.zero_grad()

    return update
