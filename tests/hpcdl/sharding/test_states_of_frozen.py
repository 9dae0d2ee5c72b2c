"""An optimizer keeps the loaded state of a frozen parameter, which counts as soon as the parameter is trained."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.sharding import ShardedOptimizer

P = 2
MAKES = {
    "momentum": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9),
    "AdamW": lambda params: torch.optim.AdamW(params, 0.05),
}


def build(trained=True):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[0].requires_grad_(trained)
    return model


def train(model, optimizer, x, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def resumed(make, x, frozen_steps, saved_twice):
    """Train, load the states into an optimizer of a model that is partly frozen, thaw it, and train again."""
    model = build()
    optimizer = make(model)
    train(model, optimizer, x, 3)
    for _ in range(1 + saved_twice):
        other = build(trained=False)
        other.load_state_dict(model.state_dict())
        state = deepcopy(optimizer.state_dict())
        model, optimizer = other, make(other)
        optimizer.load_state_dict(state)
        train(model, optimizer, x, frozen_steps)
    model[0].requires_grad_(True)
    train(model, optimizer, x, 3)
    return model.state_dict(), optimizer.state_dict()


@pytest.mark.parametrize("saved_twice", [False, True])
@pytest.mark.parametrize("frozen_steps", [0, 2])
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("name", MAKES)
def test_states_of_frozen_parameters_are_kept(name, stage, frozen_steps, saved_twice):
    x = torch.arange(12.0, dtype=torch.float64).view(4, 3) / 12
    weights, state = resumed(lambda model: MAKES[name](model.parameters()), x, frozen_steps, saved_twice)

    def rank(comm):
        def make(model):
            return ShardedOptimizer(model.parameters(), comm, MAKES[name], stage)

        return resumed(make, x.tensor_split(P)[comm.rank], frozen_steps, saved_twice)

    for found, found_state in simulate(rank, P).results:
        torch.testing.assert_close(found, weights, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found_state["state"], state["state"], rtol=1e-12, atol=1e-12)
