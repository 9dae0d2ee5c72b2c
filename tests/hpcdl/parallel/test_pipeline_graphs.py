"""Gradients of stages whose graphs are unusual: buffers that change, hooks, ways that change, weights used twice."""

import pytest
import torch
from torch import nn

from hpcdl.parallel.pipeline import FusedLayers, Layers, calls

WIDTH = 6


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*[make() for make in layers]).double()


def serial(net, loss):
    loss(net).backward()
    return {name: param.grad for name, param in net.named_parameters()}


class Counted(nn.Module):
    """A buffer that each forward pass changes, and that its output depends on."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("scale", torch.tensor(1.0))

    def forward(self, x):
        self.scale.mul_(2)
        return torch.tanh(self.linear(x) * self.scale.clone())


def test_recomputed_buffers_change_once():
    x, dy = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    found = []
    for recompute in (False, True):
        net = network(Counted)
        layers = Layers(net, recompute)
        for k in range(2):
            layers.forward(k, x)
        for k in range(2):
            layers.backward(k, dy)
        found.append([net[0].scale, *(param.grad for param in net.parameters())])
    torch.testing.assert_close(*found)
    assert found[1][0] == 4


def test_a_hook_in_forward_is_refused_with_recompute():
    class Hooked(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            y.register_hook(lambda grad: 2 * grad)
            return y

    with pytest.raises(ValueError, match="recompute=True runs it without gradients first; use recompute=False"):
        Layers(Hooked(2, 2), recompute=True).forward(0, torch.ones(1, 2))


class Twice(nn.Module):
    """A way through the network that changes, and a weight used inside and outside of its layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.ways = 0

    def forward(self, x):
        self.ways += 1
        h = torch.tanh(self.a(x))
        if self.ways % 2:
            h = torch.tanh(self.b(h))
        return torch.tanh(h @ self.a.weight) if self.ways > 2 else torch.tanh(self.b(h))


@pytest.mark.parametrize("early", [0, 3, 32])  # passes that are looked at in any case
@pytest.mark.parametrize("kind", [Layers, FusedLayers])
def test_ways_through_a_network_may_change(kind, early, monkeypatch):
    monkeypatch.setattr(calls, "EARLY", early)
    x, dy = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    net, other = network(Twice), network(Twice)
    layers = kind(net)
    for k in range(8):
        layers.forward(k, x)
        layers.backward_input(k, dy)
        layers.backward_weight(k)
        other(x).backward(dy)
    torch.testing.assert_close(
        [param.grad for param in net.parameters()], [param.grad for param in other.parameters()], rtol=1e-12, atol=1e-13
    )


class Inner(nn.Module):
    """A layer whose one weight is in two products; the second makes the output."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        return nn.functional.linear(torch.tanh(nn.functional.linear(x, self.weight)), self.weight)


class Aside(nn.Linear):
    """A layer whose weight reaches the output by an attribute, too."""

    def forward(self, x):
        self.penalty = self.weight.square().mean()
        return super().forward(x)


class WithAside(nn.Module):
    def __init__(self):
        super().__init__()
        self.aside = Aside(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.aside(x)) + self.aside.penalty


@pytest.mark.parametrize("kind", [Layers, FusedLayers])
@pytest.mark.parametrize("make", [Inner, WithAside])
def test_weights_used_in_two_ways(make, kind):
    x, dy = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    net = network(lambda: nn.Linear(WIDTH, WIDTH), make)
    expected = serial(net, lambda net: (net(x) * dy).sum())
    net.zero_grad()
    layers = kind(net)
    layers.forward(0, x)
    layers.backward_input(0, dy)
    layers.backward_weight(0)
    found = {name: param.grad for name, param in net.named_parameters()}
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
