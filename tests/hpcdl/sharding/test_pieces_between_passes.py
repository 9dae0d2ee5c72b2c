"""Between passes a fully sharded model has its pieces, whatever a pass without `synchronize` has left whole."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hpcdl.comm import simulate
from hpcdl.sharding import FullyShardedDataParallel, checkpointed

P = 2


class Net(nn.Module):
    """Two layers, which `call(net, x)` uses."""

    def __init__(self, call):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.call = nn.Linear(4, 4).double(), nn.Linear(4, 4).double(), call

    def forward(self, x):
        return self.call(self, x)


def gradient_inside(net, x):
    h = torch.tanh(net.a(x))
    if h.requires_grad:
        h = h + torch.autograd.grad(h.sin().sum(), h, retain_graph=True)[0].detach()
    return net.b(h)


CALLS = {
    "layers": lambda net, x: net.b(torch.tanh(net.a(x))),
    "weight outside its layer": lambda net, x: functional.linear(torch.tanh(net.a(x)), net.b.weight),
    "weight in the sum": lambda net, x: net.b(torch.tanh(net.a(x))) + net.a.weight.sum(),
    "checkpoint": lambda net, x: checkpoint(nn.Sequential(net.a, nn.Tanh(), net.b), x, use_reentrant=False),
    "checkpointed": lambda net, x: checkpointed(nn.Sequential(net.a, nn.Tanh(), net.b), x),
    "checkpoint with a weight outside": lambda net, x: checkpoint(
        lambda x: functional.linear(torch.tanh(net.a(x)), net.b.weight), x, use_reentrant=False
    ),
    "gradient inside": gradient_inside,
}


def evaluate(model, x):
    model(x)


def attack(model, x):
    """The gradient of inputs, while all weights are frozen."""
    model.requires_grad_(False)
    model(x.clone().requires_grad_()).square().mean().backward()
    model.requires_grad_(True)


def differentiate(model, x):
    """The gradient of the output only: no layer's backward pass ends."""
    y = model(x)
    torch.autograd.grad(y.square().mean(), y)


def nothing(model, x):
    pass


def train(model, x, between, params, synchronize=lambda: None, two=False):
    """Three steps with `between` in the middle of each; two forward passes, `two` of them before backward."""
    optimizer = torch.optim.SGD(params, 0.1, momentum=0.9)
    for _ in range(3):
        loss = model(x).square().mean()
        if two:
            loss = loss + model(x.flip(1)).square().mean()
        for param in model.parameters() if two else ():
            assert any(param is each for each in params)
        loss.backward()
        synchronize()
        optimizer.step()
        between(model, x)
        assert all(param is each for param, each in zip(model.parameters(), params, strict=True))
        model.zero_grad()
        for param in model.parameters():
            param.data.clamp_(-0.4, 0.4)


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("between", [nothing, evaluate, attack, differentiate])
@pytest.mark.parametrize("call", CALLS)
def test_parameters_are_pieces_between_passes(call, between, two):
    x, serial = torch.arange(24.0, dtype=torch.float64).view(6, 4) / 24, Net(CALLS[call])
    train(serial, x, between, list(serial.parameters()), two=two)
    expected = deepcopy(serial.state_dict())

    def rank(comm):
        model = FullyShardedDataParallel(Net(CALLS[call]), comm)
        train(model, x.tensor_split(P)[comm.rank], between, list(model.parameters()), model.synchronize, two)
        return model.state_dict()

    for found in simulate(rank, P).results:
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def of_other_samples(model, x):
    with torch.no_grad():
        model(x[:1])


def of_a_branch(model, x):
    """Another forward pass with gradients, which does not use every layer."""
    (model.module if hasattr(model, "synchronize") else model).call = CALLS["layers"]
    model(x)


def states(model, x):
    model.state_dict()


@pytest.mark.parametrize("between", [of_other_samples, of_a_branch, states])
@pytest.mark.parametrize("call", CALLS)
def test_backward_after_something_else(call, between):
    """What a layer needs in backward is gathered again, if something between forward and backward has freed it."""
    x = torch.arange(24.0, dtype=torch.float64).view(6, 4) / 24

    def run(model, module, x, synchronize=lambda: None):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            module.call = CALLS[call]
            loss = model(x).square().mean()
            between(model, x)
            loss.backward()
            synchronize()
            optimizer.step()
            optimizer.zero_grad()

    def rank(comm):
        module = Net(CALLS[call])
        model = FullyShardedDataParallel(module, comm)
        run(model, module, x.tensor_split(P)[comm.rank], model.synchronize)
        return model.state_dict()

    serial = Net(CALLS[call])
    run(serial, serial, x)
    for found in simulate(rank, P).results:
        torch.testing.assert_close(found, dict(serial.state_dict()), rtol=1e-12, atol=1e-12)
