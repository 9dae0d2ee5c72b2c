"""`LossScaler` with a sharded optimizer of both stages against one process: the same steps, skips and clipped norms."""

import pytest
import torch
from torch import nn

from hpcdl.comm import RankError, simulate
from hpcdl.sharding import ShardedOptimizer
from hpcdl.training import LossScaler

STEPS, ROWS, LIMIT = 4, 6, 0.05


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def rows(step):
    """The last row of the second step overflows, on the last rank."""
    x = torch.randn(ROWS, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
    weights = torch.ones(ROWS, dtype=torch.float64)
    weights[-1] = float("inf") if step == 1 else 1
    return x, weights


def loss_of(model, x, weights):
    return (model(x).square().sum(1) * weights).mean()


def make(params):
    return torch.optim.SGD(params, 0.1, momentum=0.9)


def right(clip):
    model = net()
    optimizer, stepped = make(model.parameters()), []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, *rows(step)).backward()
        grads = [param.grad for param in model.parameters()]
        stepped.append(all(bool(grad.isfinite().all()) for grad in grads))
        if stepped[-1]:
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
            optimizer.step()
    return [param.detach() for param in model.parameters()], stepped


def trained(comm, stage, clip, own=True):
    model = net()
    optimizer = ShardedOptimizer(model.parameters(), comm, make, stage=stage)
    scaler, stepped = LossScaler(comm if own else None, 1024.0), []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, weights = (part.tensor_split(comm.size)[comm.rank] for part in rows(step))
        optimizer.count(len(x))
        scaler.scale(loss_of(model, x, weights)).backward()
        params = list(model.parameters())
        if clip:
            optimizer.reduce()
            params = [param for group in optimizer.param_groups for param in group["params"]]
            if scaler.unscale(params):
                optimizer.clip(LIMIT)
        stepped.append(scaler.step(optimizer, params))
    return [param.detach() for param in model.parameters()], stepped, scaler.value


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_ranks_step_and_skip_as_one_process(p, stage, clip):
    weights, stepped = right(clip)
    assert stepped == [True, False, True, True]
    for found, steps, scale in simulate(trained, p, stage, clip).results:
        assert (steps, scale) == (stepped, 512)
        torch.testing.assert_close(found, weights, rtol=1e-9, atol=1e-9)


def test_shares_without_a_common_vote_are_refused():
    with pytest.raises(RankError, match="make the LossScaler with comm"):
        simulate(trained, 2, 2, False, False)
