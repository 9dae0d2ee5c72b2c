"""Fully sharded models in bfloat16 whose layers make float32 inside, or have to stay in float32."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from hpcdl.comm import RankError, simulate
from hpcdl.sharding import FullyShardedDataParallel


class Shifted(nn.Linear):
    """A layer that adds a float32 buffer, and returns float32."""

    def __init__(self):
        super().__init__(6, 6)
        self.register_buffer("position", torch.linspace(0, 1, 6))

    def forward(self, x):
        return super().forward(x).float().softmax(-1) + self.position


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x):
        return self.norm(self.linear(x))


class Outside(nn.Module):
    """One weight is used outside its layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return functional.linear(self.a(x), self.b.weight)


class Clamped(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


MODELS = {
    "float32 between layers": lambda: nn.Sequential(nn.Linear(6, 6), Shifted(), nn.Linear(6, 6)),
    "float32 at the end": lambda: nn.Sequential(nn.Linear(6, 6), Shifted()),
    "BatchNorm": lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6)),
    "BatchNorm in a block": lambda: nn.Sequential(Block(), Block()),
    "LayerNorm": lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)),
    "used outside": Outside,
}


def train(comm, make, dtype):
    """Losses of three steps on the same batch everywhere, and the types in the state dict."""
    torch.manual_seed(0)
    model = FullyShardedDataParallel(make(), comm, (Block,), dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, losses = torch.linspace(-1, 1, 36).view(6, 6), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(x).float() - 1).square().mean()
        loss.backward()
        model.synchronize()
        optimizer.step()
        losses.append(loss.item())
    return losses, {value.dtype for value in model.state_dict().values() if value.is_floating_point()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("p", [1, 2])
def test_bfloat16_is_close_to_float32(name, p):
    losses, dtypes = simulate(train, p, MODELS[name], torch.bfloat16).results[0]
    assert losses == pytest.approx(simulate(train, p, MODELS[name], None).results[0][0], rel=0.05)
    assert dtypes == {torch.float32}


def test_a_change_in_16_bits_is_refused():
    with pytest.raises(RankError, match=r"forward changed weight in place, and its change in torch.bfloat16 would be"):
        simulate(train, 2, lambda: Clamped(6, 6), torch.bfloat16)
