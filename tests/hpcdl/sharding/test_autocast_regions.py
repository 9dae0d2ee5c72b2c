"""Under ZeRO-3 a region of autocast may be around one forward pass, a step or the whole training: the same bits."""

import contextlib

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.sharding import FullyShardedDataParallel

STEPS, PASSES, ROWS = 3, 2, 4  # a step has two backward passes


class Tied(nn.Module):
    """A layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.b(self.a(self.a(x).tanh()).tanh())


MODELS = {
    "MLP": lambda: nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)),
    "called twice": Tied,
}


def train(comm, name, region, synced):
    """Train with `region`, the name of the loop's part that autocast is around; return the weights."""
    torch.manual_seed(0)
    model = FullyShardedDataParallel(MODELS[name](), comm, (nn.Linear,))
    optimizer = torch.optim.SGD(model.parameters(), 0.5)

    def around(part):
        return torch.autocast("cpu", torch.bfloat16) if part == region else contextlib.nullcontext()

    with around("training"):
        for step in range(STEPS):
            with around("step"):
                for i in range(PASSES):
                    x = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(9 * step + 3 * i + comm.rank))
                    with model.no_sync() if i < PASSES - 1 and not synced else contextlib.nullcontext():
                        with around("forward"):
                            loss = model(x).float().square().mean() / PASSES
                        loss.backward()
                    if synced or i == PASSES - 1:
                        model.synchronize()
                optimizer.step()
                optimizer.zero_grad()
    return torch.cat([x.flatten() for x in model.state_dict().values()])


@pytest.mark.parametrize("synced", [True, False], ids=["synchronized", "no_sync"])
@pytest.mark.parametrize("region", ["step", "training"])
@pytest.mark.parametrize("name", MODELS)
def test_any_region(name, region, synced):
    expected = simulate(train, 2, name, "forward", synced).results
    for found, each in zip(simulate(train, 2, name, region, synced).results, expected, strict=True):
        assert torch.equal(found, each)
