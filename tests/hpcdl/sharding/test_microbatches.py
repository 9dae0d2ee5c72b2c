"""Ranks may cut their samples into different numbers of microbatches, except at stage 2, which says so."""

import contextlib

import pytest
import torch
from torch import nn

from hpcdl.comm import RankError, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import ShardedOptimizer

STEPS, ROWS = 3, 2  # of a microbatch
NUMBERS = [(3, 2, 1), (1, 3), (2, 2, 2), (2, 0, 1), (1, 4, 1, 2)]  # of microbatches on each rank


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def batch(step, numbers):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(ROWS * sum(numbers), 4, dtype=torch.float64, generator=generator)


def sgd(params):
    return torch.optim.SGD(params, 0.1, momentum=0.9)


def weights(network):
    return torch.cat([x.detach().flatten() for x in network.parameters()])


def in_one_process(numbers):
    network = model()
    optimizer = sgd(network.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        network(batch(step, numbers)).square().mean().backward()
        optimizer.step()
    return weights(network)


def train(comm, kind, numbers):
    network, k, before = model(), numbers[comm.rank], sum(numbers[: comm.rank])
    ddp = DistributedDataParallel(network, comm) if kind == "DDP" else None
    optimizer = sgd(network.parameters()) if ddp else ShardedOptimizer(network.parameters(), comm, sgd, int(kind[-1]))
    for step in range(STEPS):
        mine = batch(step, numbers)[ROWS * before : ROWS * (before + k)]
        parts = mine.split(ROWS) if k else [mine]
        for i, part in enumerate(parts):
            only_adds = ddp.no_sync() if ddp and i < len(parts) - 1 else contextlib.nullcontext()
            with optimizer.adding() if kind == "ZeRO-2" else only_adds:
                if not ddp:
                    optimizer.count(len(part))
                (((ddp or network)(part).square().sum(0) / max(len(part), 1)).mean() / len(parts)).backward()
        if ddp:
            ddp.synchronize()
        optimizer.step()
        optimizer.zero_grad()
    return weights(network)


@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
@pytest.mark.parametrize("kind", ["DDP", "ZeRO-1"])
def test_any_numbers(kind, numbers):
    for found in simulate(train, len(numbers), kind, numbers).results:
        torch.testing.assert_close(found, in_one_process(numbers), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
def test_at_stage_2(numbers):
    if len({max(k, 1) for k in numbers}) > 1:
        with pytest.raises(RankError, match="ranks sent gradients of different numbers of backward passes"):
            simulate(train, len(numbers), "ZeRO-2", numbers)
    else:
        for found in simulate(train, len(numbers), "ZeRO-2", numbers).results:
            torch.testing.assert_close(found, in_one_process(numbers), rtol=1e-12, atol=1e-12)
