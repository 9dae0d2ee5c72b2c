"""F, B and W of a module apart are its forward and backward pass, recomputed or not."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from hpcdl.parallel.pipeline import Layers

HIDDEN = 6


class Tied(nn.Module):
    """A layer called twice, a weight of no layer, a weight of two layers, and one that is frozen or unused."""

    def __init__(self):
        super().__init__()
        self.twice, self.one, self.other = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.other.weight = self.one.weight
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.frozen, self.unused = nn.Linear(HIDDEN, HIDDEN).requires_grad_(False), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        self.unused(x)
        return self.other(torch.tanh(self.one(self.frozen(self.twice(torch.tanh(self.twice(x))))))) * self.scale


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(
    "build",
    [Tied, lambda: nn.TransformerEncoderLayer(HIDDEN, 2, 8, dropout=0.0, batch_first=True)],
    ids=["tied", "attention"],
)
def test_b_and_w_apart_are_the_whole_backward_pass(build, recompute):
    torch.manual_seed(0)
    module, x = build().double(), torch.randn(2, 3, HIDDEN, dtype=torch.float64)
    dy = torch.randn_like(x)
    whole = x.clone().requires_grad_()
    module(whole).backward(dy)
    expected = [param.grad for param in module.parameters()]
    module.zero_grad()
    layers = Layers(module, recompute)
    layers.forward(0, whole)
    layers.forward(1, 2 * whole)
    torch.testing.assert_close(layers.backward_input(0, dy), whole.grad, rtol=1e-12, atol=1e-14)
    assert all(param.grad is None for param in module.parameters())
    layers.backward_weight(0)
    torch.testing.assert_close([param.grad for param in module.parameters()], expected, rtol=1e-12, atol=1e-14)


def test_b_leaves_all_products_for_the_weights_to_w():
    net = nn.Sequential(*(nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh()) for _ in range(3))).double()
    x = torch.randn(13, HIDDEN, dtype=torch.float64)
    layers, products = Layers(net), 3 * 2 * len(x) * HIDDEN**2

    def flops(f, *args):
        with FlopCounterMode(display=False) as counter:
            f(*args)
        return counter.get_total_flops()

    assert flops(layers.forward, 0, x.requires_grad_()) == products
    assert flops(layers.backward_input, 0, torch.ones_like(x)) == products
    assert flops(layers.backward_weight, 0) == products


def test_recomputed_dropout_is_the_same():
    net = nn.Sequential(nn.Linear(HIDDEN, 64), nn.Dropout(0.5), nn.Linear(64, HIDDEN)).double()
    x = torch.randn(5, HIDDEN, dtype=torch.float64)
    found = []
    for recompute in (False, True):
        net.zero_grad()
        layers = Layers(net, recompute)
        torch.manual_seed(3)
        y = [layers.forward(k, x) for k in range(2)]
        for k in range(2):
            layers.backward(k, torch.ones_like(y[k]))
        found.append([param.grad.clone() for param in net.parameters()])
    torch.testing.assert_close(*found)


def test_the_gradient_of_the_batch_itself_is_not_computed():
    net, x = (
        nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN)).double(),
        torch.ones(4, HIDDEN),
    )
    layers = Layers(net)
    layers.forward(0, x.double())
    with FlopCounterMode(display=False) as counter:
        assert layers.backward_input(0, torch.ones(4, HIDDEN, dtype=torch.float64)) is None
    assert counter.get_total_flops() == 2 * 4 * HIDDEN**2  # of the second layer alone
    layers.backward_weight(0)
    assert all(param.grad is not None for param in net.parameters())


@pytest.mark.parametrize("recompute", [False, True])
def test_a_first_part_without_weights_has_no_backward_pass(recompute):
    layers = Layers(nn.Flatten(), recompute)
    for k in range(2):
        layers.forward(k, torch.ones(2, 3, 3))
    assert layers.backward(0, torch.ones(2, 9)) is None
    assert layers.backward_input(1, torch.ones(2, 9)) is None
    layers.backward_weight(1)
