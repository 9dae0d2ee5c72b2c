"""Penalties on split weights whose replicas are trained by data parallelism and by ZeRO-1 to -3."""

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.parallel import Mesh
from hpcdl.parallel.tensor import ColumnLinear, RowLinear, join
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer


def dense() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def batches() -> list[torch.Tensor]:
    return [torch.randn(8, 5, generator=torch.Generator().manual_seed(i), dtype=torch.float64) for i in range(3)]


def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean() + 0.1 * sum(param.pow(2).sum() for param in model.parameters())


def adam(params) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, 0.05)


def one_process() -> nn.Sequential:
    model = dense()
    optimizer = adam(model.parameters())
    for x in batches():
        optimizer.zero_grad()
        loss(model, x).backward()
        optimizer.step()
    return model


WRAPPERS = {"DDP": DistributedDataParallel, "ZeRO-3": FullyShardedDataParallel}


def trained(comm, name: str) -> list[torch.Tensor]:
    mesh, net = Mesh(comm, data=2, tensor=2), dense()
    inner = nn.Sequential(ColumnLinear.of(net[0], mesh.tensor), nn.Tanh(), RowLinear.of(net[2], mesh.tensor))
    model = WRAPPERS[name](inner, mesh.data) if name in WRAPPERS else inner
    optimizer = (
        adam(model.parameters())
        if name in WRAPPERS
        else ShardedOptimizer(model.parameters(), mesh.data, adam, stage=int(name[-1]))
    )
    for x in batches():
        optimizer.zero_grad()
        loss(model, x.tensor_split(2)[mesh.replica]).backward()
        if name in WRAPPERS:
            model.synchronize()
        optimizer.step()
    state = model.state_dict() if name == "ZeRO-3" else inner.state_dict()
    return [join(state["0.weight"], mesh.tensor, 7, 0), join(state["2.weight"], mesh.tensor, 7, 1)]


@pytest.mark.parametrize("name", ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"])
def test_penalties_are_right_on_replicas_of_shares(name):
    expected = one_process()
    for found in simulate(trained, 4, name).results:
        for x, layer in zip(found, (expected[0], expected[2]), strict=True):
            torch.testing.assert_close(x, layer.weight.detach(), rtol=1e-12, atol=1e-12)
