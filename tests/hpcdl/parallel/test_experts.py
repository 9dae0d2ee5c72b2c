"""Experts on ranks against a loop over tokens on one: values, gradients, drops, bytes."""

import math
from fractions import Fraction

import pytest
import torch
from torch import nn

from hpcdl.comm import RankError, simulate
from hpcdl.memory import meter
from hpcdl.parallel.experts import Experts
from hpcdl.parallel.gradients import sum_gradients
from hpcdl.parallel.shares import shares

HIDDEN = 4


def network(experts, bias=0.0):
    """A gate and all experts; with `bias` the gate prefers the first."""
    torch.manual_seed(0)
    gate = nn.Linear(HIDDEN, experts).double()
    with torch.no_grad():
        gate.bias[0] += bias
    return gate, [nn.Sequential(nn.Linear(HIDDEN, 3), nn.Tanh(), nn.Linear(3, HIDDEN)).double() for _ in range(experts)]


def tokens_of(p):
    """Tokens of each rank, unequally many, and the gradients of what comes back."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 5 + 3 * (r % 2), HIDDEN, generator=generator, dtype=torch.float64) for r in range(p)]


def serial(gate, experts, parts, k, room):
    """A loop over ranks and tokens; what comes back, which choices were kept, and the balance loss."""
    taken = []
    for x in parts:
        capacity, used = math.ceil(Fraction(str(room)) * k * len(x) / len(experts)), [0] * len(experts)
        probabilities = gate(x).softmax(-1)
        order = probabilities.argsort(-1, descending=True)[:, :k]
        kept = [[False] * k for _ in x]
        for choice in range(k):
            for n in range(len(x)):
                e = int(order[n, choice])
                kept[n][choice] = used[e] < capacity
                used[e] += kept[n][choice]
        rows = []
        for n, token in enumerate(x):
            mine = [int(order[n, c]) for c in range(k) if kept[n][c]]
            rows.append(sum(probabilities[n, e] * experts[e](token) for e in mine) if mine else token)
        taken.append((torch.stack(rows), torch.tensor(kept), order))
    probabilities = gate(torch.cat(parts)).softmax(-1)
    chosen = torch.cat([order for *_, order in taken]).flatten()
    share = torch.stack([(chosen == e).double().mean() for e in range(len(experts))])
    return taken, len(experts) * (share * probabilities.mean(0)).sum()


def or_zeros(params):
    """Gradients; an expert that no token took has none here and zeros there."""
    return [torch.zeros_like(param) if param.grad is None else param.grad for param in params]


@pytest.mark.parametrize(("k", "room", "bias"), [(1, 1.25, 0.0), (2, 1.0, 0.0), (1, 1.0, 4.0), (3, 0.4, 1.0)])
@pytest.mark.parametrize(("p", "experts"), [(1, 3), (2, 4), (3, 5), (4, 6), (5, 4)])
def test_experts_are_a_loop_over_tokens(p, experts, k, room, bias):
    gate, layers = network(experts, bias)
    batches = tokens_of(p)
    inputs = [x.clone().requires_grad_() for x, _ in batches]
    taken, balance = serial(gate, layers, inputs, k, room)
    sum(((y * dy).sum() for (y, *_), (_, dy) in zip(taken, batches, strict=True)), 0.1 * balance).backward()
    sizes = shares(experts, p)

    def rank(comm):
        mine, r = network(experts, bias), comm.rank
        layer = Experts(mine[0], mine[1][sum(sizes[:r]) : sum(sizes[: r + 1])], comm, k=k, room=room)
        x = batches[r][0].clone().requires_grad_()
        y, routing = layer(x)
        ((y * batches[r][1]).sum() + 0.1 * routing.balance).backward()
        sum_gradients(layer.gate.parameters(), comm)
        return y.detach(), routing, x.grad, layer

    run = simulate(rank, p)
    found = [param for *_, layer in run.results for param in layer.experts.parameters()]
    expected = [param for layer in layers for param in layer.parameters()]
    torch.testing.assert_close(*map(or_zeros, (found, expected)), rtol=1e-10, atol=1e-12)
    for (y, routing, dx, layer), (right, kept, order), x in zip(run.results, taken, inputs, strict=True):
        torch.testing.assert_close(y, right.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(dx, x.grad, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(routing.balance.detach(), balance.detach(), rtol=1e-12, atol=0.0)
        assert torch.equal(routing.kept, kept)
        assert torch.equal(routing.chosen, order)
        assert routing.dropped == int((~kept).sum())
        torch.testing.assert_close(layer.gate.weight.grad, gate.weight.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("p", "experts", "k"), [(1, 3, 1), (2, 3, 2), (3, 2, 1)])
def test_under_autocast_experts_come_near_the_exact_ones(p, experts, k, dtype):
    """On ranks without experts, too; the result has the tokens' dtype, as a residual connection needs it."""
    batches = [(x.to(dtype), dy) for x, dy in tokens_of(p)]
    gate, layers = network(experts)
    with torch.no_grad():
        gate.weight.mul_(4)  # far from a tie, which rounding would decide
    inputs = [x.double().requires_grad_() for x, _ in batches]
    taken, _ = serial(gate, layers, inputs, k, 100)
    sum((y * dy).sum() for (y, *_), (_, dy) in zip(taken, batches, strict=True)).backward()
    sizes = shares(experts, p)

    def rank(comm):
        mine, r = network(experts), comm.rank
        layer = Experts(mine[0], mine[1][sum(sizes[:r]) : sum(sizes[: r + 1])], comm, k=k, room=100).float()
        with torch.no_grad():
            layer.gate.weight.mul_(4)
        x = batches[r][0].clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            y, routing = layer(x)
        (y.double() * batches[r][1]).sum().backward()
        sum_gradients(layer.gate.parameters(), comm)
        return y, routing, x.grad, layer

    run = simulate(rank, p)
    for (y, routing, dx, layer), (right, _, order), x in zip(run.results, taken, inputs, strict=True):
        assert y.dtype is dx.dtype is dtype
        assert torch.equal(routing.chosen, order)
        torch.testing.assert_close(y.detach().double(), right.detach(), rtol=0.05, atol=0.05)
        torch.testing.assert_close(dx.double(), x.grad, rtol=0.1, atol=0.2)
        torch.testing.assert_close(layer.gate.weight.grad.double(), gate.weight.grad, rtol=0.1, atol=0.2)


def test_dropped_tokens_come_back_as_they_are():
    gate, layers = network(2, bias=1e3)  # all want the first
    x = torch.randn(8, HIDDEN, dtype=torch.float64)
    y, routing = simulate(lambda comm: Experts(gate, layers, comm, room=1.0)(x), 1).results[0]
    assert routing.kept[:, 0].tolist() == [True] * 4 + [False] * 4
    assert routing.dropped == 4
    assert torch.equal(y[4:], x[4:])
    assert not torch.isclose(y[:4], x[:4]).any()
    assert routing.balance.item() == pytest.approx(2.0)  # at worst


@pytest.mark.parametrize(("p", "experts"), [(2, 4), (3, 5)])
def test_a_row_travels_for_each_choice_that_is_kept_elsewhere(p, experts):
    batches, sizes = tokens_of(p), shares(experts, p)
    owner = [r for r, size in enumerate(sizes) for _ in range(size)]

    def rank(comm):
        gate, layers = network(experts)
        first = sum(sizes[: comm.rank])
        layer = Experts(gate, layers[first : first + sizes[comm.rank]], comm, k=2)
        _, routing = layer(batches[comm.rank][0])
        return [owner[e] for e in routing.chosen[routing.kept].tolist()]

    run = simulate(rank, p)
    away = [[sum(to == r for to in run.results[s]) for r in range(p) if r != s] for s in range(p)]
    there = sum(map(sum, away)) * HIDDEN * 8
    counts = (p - 1) * experts * 8
    balance = 2 * (p - 1) * (2 * experts + 1) * 8
    assert sum(run.bytes_sent) == 2 * there + counts + balance


def test_a_rank_without_experts_and_inputs_without_gradients_take_part():
    def rank(comm):
        gate, layers = network(2)
        y, _ = Experts(gate, layers[comm.rank :][:1] if comm.rank < 2 else [], comm)(tokens_of(3)[comm.rank][0])
        y.sum().backward()
        return gate.weight.grad is not None

    assert all(simulate(rank, 3).results)


def test_a_rank_holds_its_own_experts_alone():
    def rank(comm):
        gate, layers = network(5)
        layer = Experts(gate, layers[:2] if comm.rank < 2 else layers[4:], comm)
        with meter(layer.experts) as m:
            return m.live["parameters"]

    one = 8 * (HIDDEN * 3 + 3 + 3 * HIDDEN + HIDDEN)
    assert simulate(rank, 3).results == [2 * one, 2 * one, one]


@pytest.mark.parametrize(
    ("count", "k", "said"),
    [(3, 1, r"rank 0: there are 3 experts; of 4 its share is 2"), (2, 5, r"k is 5; a token goes through 1 to 4")],
)
def test_what_does_not_fit_is_said(count, k, said):
    gate, layers = network(4)
    with pytest.raises(RankError, match=said):
        simulate(lambda comm: Experts(gate, layers[:count], comm, k=k), 2)


@pytest.mark.parametrize("shape", [(HIDDEN,), (2, 3, HIDDEN), (3, HIDDEN + 1)])
def test_tokens_are_rows(shape):
    gate, layers = network(2)
    with pytest.raises(RankError, match=r"rank 0: x has shape \(.*\); it is \(tokens, 4\)"):
        simulate(lambda comm: Experts(gate, layers, comm)(torch.ones(shape).double()), 1)


@pytest.mark.parametrize(("room", "n", "experts", "k"), [(1.1, 100, 10, 1), (1.15, 100, 5, 1), (0.7, 30, 3, 2)])
def test_capacity_is_the_decimals_product(room, n, experts, k):
    gate = nn.Linear(HIDDEN, experts)
    layers = [nn.Identity() for _ in range(experts)]
    layer = simulate(lambda comm: Experts(gate, layers, comm, k=k, room=room), 1).results[0]
    assert layer.capacity(n) == math.ceil(Fraction(str(room)) * k * n / experts)


def test_infinite_room_drops_nothing():
    gate, layers = network(2, bias=1e3)
    x = torch.randn(8, HIDDEN, dtype=torch.float64)
    assert simulate(lambda comm: Experts(gate, layers, comm, room=math.inf)(x)[1].dropped, 1).results == [0]
    with pytest.raises(RankError, match="room is nan; it is above 0"):
        simulate(lambda comm: Experts(gate, layers, comm, room=math.nan), 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_balance_counts_thousands_in_any_dtype(dtype):
    """An even choice of 3,000 tokens has balance 1, where bfloat16 would count to 256."""
    gate = nn.Linear(2, 2, bias=False, dtype=dtype)
    with torch.no_grad():
        gate.weight.copy_(torch.eye(2))
    x = torch.eye(2, dtype=dtype).repeat(1500, 1)
    layers = [nn.Identity() for _ in range(2)]
    found = simulate(lambda comm: Experts(gate, [layers[comm.rank]], comm)(x)[1].balance, 2).results
    assert [b.dtype for b in found] == [dtype] * 2
    assert [b.item() for b in found] == [1.0] * 2


def test_renormalized_weights_add_up_to_one():
    gate, _ = network(4)
    x = torch.randn(5, HIDDEN, dtype=torch.float64)
    layers = [nn.Identity() for _ in range(4)]

    def rank(comm):
        mine = layers[2 * comm.rank :][:2]
        return Experts(gate, mine, comm, k=2, room=math.inf, renormalize=True)(x)[0].detach()

    for y in simulate(rank, 2).results:
        torch.testing.assert_close(y, x, rtol=1e-12, atol=1e-12)
