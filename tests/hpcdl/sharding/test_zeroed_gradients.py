"""A zero gradient, of zero_grad(set_to_none=False), is stepped with, by momentum and decay; a missing one is not."""

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer

P, STEPS = 2, 6
KINDS = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
OPTIMIZERS = {
    "momentum": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda params: torch.optim.AdamW(params, 0.05),
}
# Whether each step's gradients are set to None, or to zeros.
TO_NONE = {
    "none": [True] * STEPS,
    "zeros": [False] * STEPS,
    "none, then zeros": [True, True, True, False, False, False],
    "in turns": [False, True] * (STEPS // 2),
}


class Branches(nn.Module):
    """Two layers, and two branches that are used in turns."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.branches = nn.Linear(3, 3), nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)])
        self.double()

    def forward(self, x, which):
        return self.branches[which](torch.tanh(self.first(x)))


def train(model, module, optimizer, x, to_none, before, synchronize=lambda: None):
    for step in range(STEPS):
        if before:
            optimizer.zero_grad(set_to_none=to_none[step])
        if step == 4:
            module.first.bias.requires_grad_(False)
        model(x, step % 3 % 2).square().mean().backward()
        synchronize()
        optimizer.step()
        if not before:
            optimizer.zero_grad(set_to_none=to_none[step])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("before", [True, False], ids=["before backward", "after the step"])
@pytest.mark.parametrize("to_none", TO_NONE)
@pytest.mark.parametrize("kind", KINDS)
def test_zero_gradients_are_stepped_as_on_one_machine(kind, to_none, before, name):
    x, whole = torch.arange(12.0, dtype=torch.float64).view(4, 3) / 12, Branches()
    train(whole, whole, OPTIMIZERS[name](whole.parameters()), x, TO_NONE[to_none], before)

    def rank(comm):
        model, mine = Branches(), x.tensor_split(P)[comm.rank]
        if kind in ("ZeRO-1", "ZeRO-2"):
            optimizer = ShardedOptimizer(model.parameters(), comm, OPTIMIZERS[name], stage=int(kind[-1]))
            train(model, model, optimizer, mine, TO_NONE[to_none], before)
            return model.state_dict()
        wrapped = DistributedDataParallel(model, comm) if kind == "DDP" else FullyShardedDataParallel(model, comm)
        optimizer = OPTIMIZERS[name](wrapped.parameters())
        train(wrapped, model, optimizer, mine, TO_NONE[to_none], before, wrapped.synchronize)
        return model.state_dict() if kind == "DDP" else wrapped.state_dict()

    for found in simulate(rank, P).results:
        torch.testing.assert_close(found, dict(whole.state_dict()), rtol=1e-12, atol=1e-12)
