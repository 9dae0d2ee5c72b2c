"""F, B and W of a module apart are its forward and backward pass, recomputed or not."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from hpcdl.memory import meter
from hpcdl.parallel.pipeline import FusedLayers, Layers
from hpcdl.sharding import checkpointed

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


kinds = pytest.mark.parametrize("kind", [Layers, FusedLayers])


@kinds
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(
    "build",
    [Tied, lambda: nn.TransformerEncoderLayer(HIDDEN, 2, 8, dropout=0.0, batch_first=True)],
    ids=["tied", "attention"],
)
def test_b_and_w_apart_are_the_whole_backward_pass(build, recompute, kind):
    torch.manual_seed(0)
    module, x = build().double(), torch.randn(2, 3, HIDDEN, dtype=torch.float64)
    dy = torch.randn_like(x)
    whole = x.clone().requires_grad_()
    module(whole).backward(dy)
    expected = [param.grad for param in module.parameters()]
    module.zero_grad()
    layers = kind(module, recompute)
    layers.forward(0, whole)
    layers.forward(1, 2 * whole)
    torch.testing.assert_close(layers.backward_input(0, dy), whole.grad, rtol=1e-12, atol=1e-14)
    assert all(param.grad is None for param in module.parameters())
    layers.backward_weight(0)
    torch.testing.assert_close([param.grad for param in module.parameters()], expected, rtol=1e-12, atol=1e-14)


@kinds
def test_b_leaves_all_products_for_the_weights_to_w(kind):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh()) for _ in range(3))).double()
    x = torch.randn(13, HIDDEN, dtype=torch.float64)
    layers, products = kind(net), 3 * 2 * len(x) * HIDDEN**2

    def flops(f, *args):
        with FlopCounterMode(display=False) as counter:
            f(*args)
        return counter.get_total_flops()

    x.requires_grad_()
    if kind is FusedLayers:  # the counter's hooks are not to be taken for the network's own
        layers.forward(0, x)
        layers.backward(0, torch.ones_like(x))
        net.zero_grad()  # it does not count products that add to a gradient
    assert flops(layers.forward, 0, x) == products
    assert flops(layers.backward_input, 0, torch.ones_like(x)) == products
    assert flops(layers.backward_weight, 0) == products


@kinds
def test_recomputed_dropout_is_the_same(kind):
    net = nn.Sequential(nn.Linear(HIDDEN, 64), nn.Dropout(0.5), nn.Linear(64, HIDDEN)).double()
    x = torch.randn(5, HIDDEN, dtype=torch.float64)
    found = []
    for recompute in (False, True):
        net.zero_grad()
        layers = kind(net, recompute)
        torch.manual_seed(3)
        y = [layers.forward(k, x) for k in range(2)]
        for k in range(2):
            layers.backward(k, torch.ones_like(y[k]))
        found.append([param.grad.clone() for param in net.parameters()])
    torch.testing.assert_close(*found)


@kinds
def test_the_gradient_of_the_batch_itself_is_not_computed(kind):
    net, x = (
        nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN)).double(),
        torch.ones(4, HIDDEN),
    )
    layers = kind(net)
    layers.forward(0, x.double())
    with FlopCounterMode(display=False) as counter:
        assert layers.backward_input(0, torch.ones(4, HIDDEN, dtype=torch.float64)) is None
    assert counter.get_total_flops() == 2 * 4 * HIDDEN**2  # of the second layer alone
    layers.backward_weight(0)
    assert all(param.grad is not None for param in net.parameters())


@kinds
@pytest.mark.parametrize("recompute", [False, True])
def test_a_first_part_without_weights_has_no_backward_pass(recompute, kind):
    layers = kind(nn.Flatten(), recompute)
    for k in range(2):
        layers.forward(k, torch.ones(2, 3, 3))
    assert layers.backward(0, torch.ones(2, 9)) is None
    assert layers.backward_input(1, torch.ones(2, 9)) is None
    layers.backward_weight(1)


class TwoProducts(nn.Module):
    """A layer with two weights of its own; the second product makes the output."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.randn(HIDDEN, HIDDEN)) for _ in range(2))

    def forward(self, x):
        return nn.functional.linear(torch.tanh(nn.functional.linear(x, self.first)), self.second)


FUSED = {
    "one row without a batch": (lambda: nn.Linear(HIDDEN, HIDDEN), (HIDDEN,)),
    "three dimensions, no bias": (lambda: nn.Linear(HIDDEN, 4, bias=False), (2, 3, HIDDEN)),
    "no rows": (lambda: nn.Linear(HIDDEN, HIDDEN), (0, HIDDEN)),
    "a weight computed from others": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(HIDDEN, HIDDEN)),
        (5, HIDDEN),
    ),
    "frozen weight, free bias": (lambda: frozen(nn.Linear(HIDDEN, HIDDEN), "weight"), (5, HIDDEN)),
    "free weight, frozen bias": (lambda: frozen(nn.Linear(HIDDEN, HIDDEN), "bias"), (5, HIDDEN)),
    "two products": (TwoProducts, (5, HIDDEN)),
    "no layer between": (lambda: nn.Sequential(nn.Linear(HIDDEN, 3), nn.Linear(3, HIDDEN)), (5, HIDDEN)),
    "a layer called twice": (Tied, (5, HIDDEN)),
}


def frozen(layer: nn.Module, name: str) -> nn.Module:
    getattr(layer, name).requires_grad_(False)
    return layer


@pytest.mark.parametrize("apart", [False, True], ids=["B with W", "B, then W"])
@pytest.mark.parametrize("name", FUSED)
def test_fused_gradients_over_microbatches_are_autograds(name, apart):
    torch.manual_seed(1)
    build, shape = FUSED[name]
    module = build().double()
    xs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    dys = [torch.randn_like(module(x)) for x in xs]
    for x, dy in zip(xs, dys, strict=True):
        module(x).backward(dy)
    expected = [param.grad for param in module.parameters()]
    module.zero_grad()
    layers = FusedLayers(module)
    inputs = [x.detach().requires_grad_() for x in xs]
    for k, x in enumerate(inputs):
        layers.forward(k, x)
    for k, (x, dy) in enumerate(zip(xs, dys, strict=True)):
        dx = (layers.backward_input if apart else layers.backward)(k, dy)
        torch.testing.assert_close(dx, x.grad, rtol=1e-12, atol=1e-14)
    for k in range(3 * apart):
        layers.backward_weight(k)
    torch.testing.assert_close([p.grad for p in module.parameters()], expected, rtol=1e-12, atol=1e-13)


def test_a_fused_gradient_is_one_tensor_from_the_first_microbatch_on():
    net = nn.Linear(HIDDEN, HIDDEN)
    layers = FusedLayers(net)
    places = set()
    for k in range(3):
        layers.backward(k, torch.ones_like(layers.forward(k, torch.randn(4, HIDDEN))))
        places.add(net.weight.grad.data_ptr())
    assert len(places) == 1


def test_under_autocast_nothing_is_fused():
    net, x = nn.Linear(HIDDEN, HIDDEN), torch.randn(4, HIDDEN)
    with torch.autocast("cpu", torch.bfloat16):
        y = FusedLayers(net).forward(0, x)
    assert y.dtype == torch.bfloat16


def test_fused_layers_keep_no_more_than_autograd_does():
    def kept(kind):
        torch.manual_seed(2)
        net = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(2)))
        layers, found = kind(net), []
        with meter() as live:
            for k in range(3):
                layers.forward(k, torch.randn(8, 64).requires_grad_())
                found.append(live.live["activations"])
                layers.backward_input(k, torch.ones(8, 64))
                found.append(live.live["activations"])
                layers.backward_weight(k)
                found.append(live.live["activations"])
        assert not any(param.grad.requires_grad for param in net.parameters())
        return found

    assert kept(FusedLayers) == kept(Layers)


CHECKPOINTS = {
    "reentrant": lambda f, x: checkpoint(f, x, use_reentrant=True),
    "not reentrant": lambda f, x: checkpoint(f, x, use_reentrant=False),
    "ours": checkpointed,
}


class Checkpointed(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.one, self.two, self.how = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN), how
        self.attention = nn.MultiheadAttention(HIDDEN, 2, batch_first=True)

    def forward(self, x):
        return self.two(torch.tanh(self.how(lambda x: self.attention(x, x, self.one(x))[0], x)))


@kinds
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("how", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_checkpointed_blocks_are_right(how, apart, recompute, kind):
    torch.manual_seed(0)
    module, x = Checkpointed(how).double(), torch.randn(2, 3, HIDDEN, dtype=torch.float64, requires_grad=True)
    dy = torch.randn_like(x)
    module(x).backward(dy)
    expected, dx = [param.grad for param in module.parameters()], x.grad
    module.zero_grad()
    layers = kind(module, recompute)
    for k in range(2):
        layers.forward(k, x)
    for k in range(2):
        found = (layers.backward_input if apart else layers.backward)(k, dy / 2)
        torch.testing.assert_close(found, dx / 2, rtol=1e-12, atol=1e-14)
        if apart:
            layers.backward_weight(k)
    torch.testing.assert_close([param.grad for param in module.parameters()], expected, rtol=1e-12, atol=1e-14)
