"""ZeRO-3 against one machine: its weights, the formulas' bytes sent and in memory, two layers whole at a time."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.comm import TracingComm, simulate
from hpcdl.cost.collectives import TRAFFIC
from hpcdl.cost.memory import zero
from hpcdl.ddp import DistributedDataParallel
from hpcdl.memory import meter
from hpcdl.nn.awkward import TimedWork
from hpcdl.sharding import FullyShardedDataParallel


def train(comm, training, kind, make, max_norm=None, **options):
    model = FullyShardedDataParallel(training.build(kind, seed=comm.rank), comm, **options)
    optimizer, norms = training.makes[make](model.parameters()), []
    for n in training.batches:
        optimizer.zero_grad()
        x, y = training.mine(n, comm)
        cross_entropy(model(x), y).backward()
        model.synchronize()
        if max_norm is not None:
            norms.append(model.clip(max_norm))
        optimizer.step()
    return model.whole_state_dict(), norms


def close(found, expected):
    for weights, _ in found:
        for name, value in expected.items():
            torch.testing.assert_close(weights[name], value.detach(), rtol=1e-12, atol=1e-12, msg=name)


CASES = [("plain", p) for p in (1, 2, 3, 4, 5)] + [("tiny", 8)]  # eight ranks, five elements
CASES += [(kind, p) for kind in ("tied", "frozen", "unused", "deep") for p in (2, 5)]


@pytest.mark.parametrize(("kind", "p"), CASES)
def test_the_weights_are_those_of_one_machine(training, kind, p):
    make = "sgd" if p % 2 else "adamw"
    found = simulate(train, p, training, kind, make).results
    close(found, training.serial(kind, make)[0])
    for weights, _ in found:
        assert all(torch.equal(weights[name], value) for name, value in found[0][0].items())


def test_clipping_is_by_the_norm_of_the_whole_gradient(training):
    weights, norms = training.serial("plain", "sgd", max_norm=0.2)
    found = simulate(train, 3, training, "plain", "sgd", 0.2).results
    close(found, weights)
    assert found[0][1] == pytest.approx(norms, rel=1e-12)


# -- memory and traffic -----------------------------------------------------------------------------------------------


class Stack(nn.Module):
    """Layers of different sizes, the second one frozen."""

    def __init__(self):
        super().__init__()
        widths = (7, 9, 11, 10, 3)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.layers[1].requires_grad_(False)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def measured(comm, training, ahead):
    """A rank's bytes after each of three steps, those sent in it, and the most that were gathered at a time."""
    comm = TracingComm(comm)
    model = FullyShardedDataParallel(Stack(), comm, ahead=ahead)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    found = []
    with meter(model, optimizer) as m:
        m.mark("buffers", *(unit.vector for unit in model.units))
        for _ in range(3):
            since = len(comm.trace)
            optimizer.zero_grad()
            model(torch.ones(2, 7)).square().mean().backward()
            model.synchronize()
            optimizer.step()
            assert m.live["buffers"] == 0
            found.append((m.live, training.sent(comm.trace, since)))
    return found, m.highest


def sizes():
    return [sum(param.numel() for param in layer.parameters()) for layer in Stack().layers]


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_bytes_in_memory_and_on_the_wire_are_the_formulas(training, p, ahead):
    results = simulate(measured, p, training, ahead).results
    numel, frozen = sum(sizes()), sizes()[1]
    trained = numel - frozen
    ballot = TRAFFIC["recursive_doubling"](p, 8 * (7 + 6)).nbytes
    states = ("parameters", "gradients", "optimizer states")
    for step in range(3):
        lives = [found[step][0] for found, _ in results]
        assert sum(found[step][1] for found, _ in results) == (p - 1) * 4 * (3 * trained + 2 * frozen) + ballot
        for kind in states:  # frozen and trained lie in vectors of their own
            assert max(live[kind] for live in lives) - min(live[kind] for live in lives) <= 4
        formula = zero(trained, p, 3, optimizer=4, weight=4, gradient=4) + zero(
            frozen, p, 3, weight=4, gradient=0, optimizer=0
        )
        assert sum(live[kind] for live in lives for kind in states) == round(p * formula)


@pytest.mark.parametrize(("ahead", "most"), [(True, 2), (False, 1)])
def test_so_many_layers_are_whole_at_a_time(training, ahead, most):
    for _, highest in simulate(measured, 3, training, ahead).results:
        windows = [4 * sum(sizes()[i : i + most]) for i in range(len(sizes()) - most + 1)]
        assert highest["buffers"] == max(windows)
        assert highest["buffers"] < 4 * sum(sizes())


def test_a_data_parallel_run_would_fail_these_tests(training):
    """What the tests above measure of it: whole weights, and an all-reduce more than the formula's bytes."""

    def ddp(comm):
        model = DistributedDataParallel(Stack(), comm)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        with meter(model, optimizer) as m:
            model(torch.ones(2, 7)).square().mean().backward()
            model.synchronize()
            optimizer.step()
        return m.live

    for live in simulate(ddp, 3).results:
        assert live["parameters"] == 4 * sum(sizes())


# -- time -------------------------------------------------------------------------------------------------------------


class Slow(nn.Linear):
    """A layer whose passes take a second each on the simulated machine."""

    def __init__(self, comm):
        super().__init__(8, 8, bias=False)
        self.comm = comm

    def forward(self, x):
        self.comm.compute(1.0)
        return TimedWork.apply(super().forward(x), self.comm.compute, 1.0)


def seconds_of_a_step(comm, ahead):
    model = FullyShardedDataParallel(nn.Sequential(*[Slow(comm) for _ in range(6)]), comm, ahead=ahead)
    for _ in range(2):  # the first one learns the order
        begin = comm.clock()
        model(torch.ones(1, 8)).sum().backward()
        model.synchronize()
    return comm.clock() - begin


def test_the_next_layer_is_gathered_while_one_is_at_work():
    """Of 18 collectives three cannot be hidden: the first layer's gather, the last one's second, and the last sum."""
    alpha = 0.25  # on two ranks one message's time for each gather and each sum
    exposed, hidden = (max(simulate(seconds_of_a_step, 2, ahead, alpha=alpha).results) for ahead in (False, True))
    assert exposed == pytest.approx(12 + (18 + 1) * alpha)  # and the ballot
    assert hidden == pytest.approx(12 + (3 + 1) * alpha)


def test_messages_and_layers_in_bfloat16_weights_in_float32(training):
    def mixed(comm):
        comm = TracingComm(comm)
        model = FullyShardedDataParallel(Stack(), comm, dtype=torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        since = len(comm.trace)
        y = model(torch.ones(2, 7))
        y.square().mean().backward()
        model.synchronize()
        optimizer.step()
        sent = training.sent(comm.trace, since)
        return y.dtype, sent, {shard.grad.dtype for shard in model.parameters() if shard.grad is not None}, comm.trace

    numel, frozen = sum(sizes()), sizes()[1]
    results = simulate(mixed, 2).results
    assert all(dtype == torch.bfloat16 and grads == {torch.float32} for dtype, _, grads, _ in results)
    ballot = TRAFFIC["recursive_doubling"](2, 8 * 13).nbytes
    assert sum(sent for _, sent, *_ in results) == 2 * (3 * (numel - frozen) + 2 * frozen) + ballot


def test_passes_before_a_step_add_up_and_a_whole_state_goes_back_in(training):
    def accumulate(comm):
        model = FullyShardedDataParallel(training.build("plain", seed=comm.rank + 5), comm)
        model.load_whole_state_dict(training.build("plain").state_dict())
        x, y = training.batch(12)
        for half in (slice(0, 6), slice(6, 12)):
            (cross_entropy(model(x[half]), y[half]) / 2).backward()
            model.synchronize()
        grads = [shard.grad.as_subclass(torch.Tensor) for shard in model.parameters()]
        return grads, [unit.layout for unit in model.units]

    model = training.build("plain")
    x, y = training.batch(12)
    cross_entropy(model(x), y).backward()
    found = [torch.cat([grads[i] for grads, _ in simulate(accumulate, 1).results]) for i in range(6)]
    for grad, param in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(grad, param.grad.flatten(), rtol=1e-12, atol=1e-12)
    norm = sum(grad.square().sum() for grads, _ in simulate(accumulate, 3).results for grad in grads)
    torch.testing.assert_close(norm, sum(param.grad.square().sum() for param in model.parameters()))


def test_what_cannot_work_is_said(training, tmp_path):
    def mistakes(comm):
        with pytest.raises(ValueError, match="nothing to reduce"):
            FullyShardedDataParallel(nn.Linear(2, 2).requires_grad_(False), comm)
        with pytest.raises(ValueError, match="rank 1 has another model"):
            FullyShardedDataParallel(nn.Linear(2, 2 + comm.rank), comm)
        model = FullyShardedDataParallel(training.build("plain"), comm)
        with pytest.raises(RuntimeError, match="before it is wrapped"):
            model.float()
        with pytest.raises(TypeError, match="save its shards"):
            torch.save(model, tmp_path / "nowhere")

    simulate(mistakes, 2)
