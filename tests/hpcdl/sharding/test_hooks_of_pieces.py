"""Hooks on the pieces of a fully sharded model get the whole gradient: of the model's forward and of penalties."""

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.sharding import FullyShardedDataParallel

P = 2


def double(grad):
    return 2 * grad


def clamp(grad):
    return grad.clamp(-0.01, 0.01)


def double_in_place(param):
    param.grad.mul_(2)


def listen(model, register, hook):
    for param in model.parameters():
        getattr(param, register)(hook)
    return model


def train(model, x, penalty, passes, no_sync=None, synchronize=lambda: None):
    """Three steps, each of several backward passes."""
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for i in range(passes):
            loss = model(x + i).square().mean() / passes
            loss = loss + 0.1 * sum(param.square().sum() for param in params[:penalty]) / passes
            if i == passes - 1:
                loss.backward()
                synchronize()
            else:
                with no_sync() if no_sync else torch.enable_grad():
                    loss.backward()
        optimizer.step()


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


HOOKS = [
    ("register_hook", double, 1),
    ("register_hook", double, 3),
    ("register_hook", clamp, 1),
    ("register_post_accumulate_grad_hook", double_in_place, 1),
]


@pytest.mark.parametrize("penalty", [0, 2, 4])
@pytest.mark.parametrize(
    ("register", "hook", "passes", "before"),
    [(*each, before) for each in HOOKS for before in (False, True) if not (before and each[0] != "register_hook")],
)
def test_hooks_get_the_whole_gradient(register, hook, passes, before, penalty):
    """`penalty` parameters are in the loss, too, outside the model's forward; hooks of `before` wrapping or after."""
    x, serial = torch.arange(12.0, dtype=torch.float64).view(4, 3) / 10, listen(build(), register, hook)
    train(serial, x, penalty, passes)

    def rank(comm):
        module = listen(build(), register, hook) if before else build()
        model = FullyShardedDataParallel(module, comm)
        if not before:
            listen(model, register, hook)
        train(model, x.tensor_split(P)[comm.rank], penalty, passes, model.no_sync, model.synchronize)
        return model.state_dict()

    for found in simulate(rank, P).results:
        torch.testing.assert_close(found, dict(serial.state_dict()), rtol=1e-12, atol=1e-12)
