"""A sample whose output depends on its batch is told from samples that go different ways."""

import gc
import random
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules.module import _global_forward_pre_hooks

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.decisions import Decisions, Kept, mixes, split_vote

x = torch.linspace(0.1, 1, 24).view(6, 4)


class Model(nn.Module):
    def __init__(self, forward, **parts):
        super().__init__()
        self._call = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **kwargs):
        return self._call(self, *args, **kwargs)


def routed(m, x):
    y, chosen = x.clone(), x[:, 0] > 0.5
    if chosen.any():
        y[chosen] = 2 * x[chosen]
    return y


def alternating(m, x):
    m.calls += 1
    return x if m.calls % 2 else -x


def counts(m, x):
    m.calls += 1
    m.seen += x.sum()
    return torch.rand_like(x) + torch.rand(x.shape, generator=m.generator)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Model(lambda m, x: x if x.mean() > 2 else -x), True),  # decided alike by each sample alone
        (Model(lambda m, x: x if x[0, 0] > 0 else -x), True),
        (Model(lambda m, x: {"y": [x - x.mean(0)]}), True),
        (Model(lambda m, x: x.argsort(0)), True),
        (Model(routed), False),
        (Model(alternating, calls=0), False),
        (Model(lambda m, x: x.cumsum(0) * random.random()), False),
        (Model(lambda m, x: x.cumsum(0) * np.random.rand()), False),
        (Model(lambda m, x: x.cumsum(0) if torch.rand(()) > 0.5 else -x.cumsum(0)), False),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)), False),
        (Model(lambda m, x: x if x.shape[0] == 6 else x / 0 + nn.functional.nll_loss(x, x)), False),  # it raises
        (Model(lambda m, x: x.cumsum(0), rnn=nn.RNN(4, 4)), False),  # rows may be words
        (Model(lambda m, x: (x.sum(), x.shape[0], "text")), False),
    ],
)
def test_mixed_samples_are_told(module, expected):
    assert mixes(module, (x,), {}) is expected
    assert not mixes(module, (), {})


def in_float32(layer, x):
    return layer(x.float()).to(x.dtype)


def in_autocast(layer, x):
    with torch.autocast("cpu", torch.bfloat16):
        return layer(x).to(x.dtype)


@pytest.mark.parametrize(("rounded", "given"), [(in_float32, torch.float64), (in_autocast, torch.float32)])
@pytest.mark.parametrize("mixed", [True, False])
def test_rounding_inside_is_no_difference(rounded, given, mixed):
    """A layer computes in fewer bits than the output has, and not in the same order for other numbers of samples."""
    torch.manual_seed(0)
    layer, x = nn.Linear(300, 300), torch.randn(7, 300, dtype=given)
    exits = Model(lambda m, x: -x if mixed and x.mean() > 0 else x)
    assert mixes(nn.Sequential(Model(lambda m, x: rounded(layer, routed(m, x))), exits), (x,), {}) is mixed


def test_state_is_put_back():
    module = Model(counts, calls=0, seen=nn.Buffer(torch.zeros(())), rest=nn.Dropout(), generator=torch.Generator())
    kept, before, drawn = Kept(module), torch.get_rng_state(), module.generator.get_state()
    for _ in range(2):
        module(x)
        module.rest = nn.Identity()
        assert module.seen != 0
        kept.put_back()
        assert (module.calls, module.seen.item(), type(module.rest)) == (0, 0.0, nn.Dropout)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(module.generator.get_state(), drawn)


@pytest.mark.parametrize(
    ("nodes", "used", "expected"),
    [((5, 5, 0), (2, 0), False), ((5, 6, 0), (2, 0), True), ((5, 5, 0), (1, 2), True)],
)
def test_differences_are_noticed(nodes, used, expected):
    """The third rank has no samples; votes travel with a small number."""
    votes = [3 + Decisions().vote(samples, n) for samples, n in zip((4, 4, 0), nodes, strict=True)]
    number, total = split_vote(sum(votes))
    assert number == 9
    assert Decisions().differ(2, total, used) is expected


def test_equal_graphs_send_nothing():
    def program(comm):
        assert not Decisions().require(comm.size, 0.0, [comm.size], comm)
        return len(comm.events) if hasattr(comm, "events") else 0

    assert simulate(program, 2).results == [0, 0]


def test_a_watch_is_of_one_thread_and_ends():
    decisions, model = Decisions(), nn.Linear(4, 4)
    before = dict(_global_forward_pre_hooks)
    decisions.watch(model.parameters())
    thread = threading.Thread(target=model, args=(x,))
    thread.start()
    thread.join()
    assert decisions.call is None
    model(x)
    assert decisions.call is not None
    other = Decisions()
    other.watch(model.parameters())
    del other
    gc.collect()
    assert dict(_global_forward_pre_hooks) == before


class Recurrent(nn.Module):
    """Sequences of any length, with the steps ahead of the samples."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, steps):
        states = [torch.zeros_like(steps[0])]
        for step in steps:
            states.append(torch.tanh(step + self.cell(states[-1])))
        return torch.stack(states[1:])


def test_steps_of_sequences_are_no_samples():
    """Each rank's sequences have a length of their own, so its graph has another number of nodes."""
    batches = [torch.randn(3 + rank, 2, 4, dtype=torch.float64, generator=torch.manual_seed(rank)) for rank in range(2)]

    def train(rank):
        torch.manual_seed(0)
        model = DistributedDataParallel(Recurrent(), rank, samples=lambda steps: steps.shape[1])
        model(batches[rank.rank]).square().sum((0, 2)).mean().backward()
        model.synchronize()
        return model.module.cell.weight.grad

    found = simulate(train, 2).results
    torch.manual_seed(0)
    alone = Recurrent()
    torch.cat([alone(batch).square().sum((0, 2)) for batch in batches]).mean().backward()
    for gradient in found:
        assert torch.allclose(gradient, alone.cell.weight.grad, rtol=1e-12, atol=1e-14)
