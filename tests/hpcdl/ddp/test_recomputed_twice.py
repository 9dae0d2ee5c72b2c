"""A layer that is recomputed twice in one backward pass: the error names the way that works, and that way does work."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hpcdl.comm import RankError, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer, checkpointed

ONCE = partial(checkpoint, use_reentrant=False)
TWICE = {"reentrant": partial(checkpoint, use_reentrant=True), "checkpointed": checkpointed}


class Model(nn.Module):
    """Calls a layer twice, each time by `recompute`."""

    def __init__(self, recompute):
        super().__init__()
        self.first, self.layer, self.recompute = nn.Linear(3, 3), nn.Linear(3, 3), recompute

    def forward(self, x):
        x = self.first(x)
        for _ in range(2):
            x = self.recompute(self.layer, x)
        return x


def data_parallel(comm, model):
    ddp = DistributedDataParallel(model, comm)
    return ddp, ddp.synchronize


def zero_2(comm, model):
    optimizer = ShardedOptimizer(model.parameters(), comm, partial(torch.optim.SGD, lr=0.1), stage=2, bucket_mb=1e-6)
    return model, optimizer.step


def fully_sharded(comm, model):
    fsdp = FullyShardedDataParallel(model, comm)
    return fsdp, fsdp.synchronize


def train(wrap, recompute, comm):
    torch.manual_seed(0)
    model, end = wrap(comm, Model(recompute))
    model(torch.ones(2, 3)).mean().backward()
    end()


@pytest.mark.parametrize("wrap", [data_parallel, zero_2, fully_sharded])
@pytest.mark.parametrize("recompute", TWICE.values(), ids=TWICE)
def test_recomputed_twice(wrap, recompute):
    with pytest.raises(RankError, match=r"twice in one backward pass.*use_reentrant=False"):
        simulate(partial(train, wrap, recompute), 2)
    simulate(partial(train, wrap, ONCE), 2)
