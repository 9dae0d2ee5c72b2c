"""ZeRO-1 and -2 against one machine: its weights, and the formulas' bytes on the wire and in memory."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.comm import RankError, TracingComm, simulate
from hpcdl.cost.collectives import TRAFFIC
from hpcdl.cost.memory import zero
from hpcdl.ddp.guarded import Gone
from hpcdl.memory import meter
from hpcdl.sharding import ShardedOptimizer

TINY_MB = 200 / 2**20  # a bucket of 200 bytes: several of them


def train(comm, training, kind, make, stage, max_norm=None):
    model, norms = training.build(kind, seed=comm.rank), []
    optimizer = ShardedOptimizer(model.parameters(), comm, training.makes[make], stage, TINY_MB)
    clip = (lambda: None) if max_norm is None else lambda: norms.append(optimizer.clip(max_norm))
    training.learn(model, optimizer, comm, after=clip)
    return {name: param.detach().clone() for name, param in model.named_parameters()}, norms


def close(found, expected):
    for weights, _ in found:
        for name, value in expected.items():
            torch.testing.assert_close(weights[name], value.detach(), rtol=1e-12, atol=1e-12, msg=name)


CASES = [("plain", p) for p in (1, 2, 3, 4, 5)] + [("tiny", 8)]  # eight ranks, five elements
CASES += [(kind, p) for kind in ("tied", "frozen", "unused", "routed") for p in (2, 5)]


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize(("kind", "p"), CASES)
def test_the_weights_are_those_of_one_machine(training, kind, p, stage):
    make = "sgd" if (p + stage) % 2 else "adamw"
    found = simulate(train, p, training, kind, make, stage).results
    close(found, training.serial(kind, make)[0])
    for weights, _ in found:
        assert all(torch.equal(weights[name], value) for name, value in found[0][0].items())


@pytest.mark.parametrize("stage", [1, 2])
def test_clipping_is_by_the_norm_of_the_whole_gradient(training, stage):
    weights, norms = training.serial("plain", "sgd", max_norm=0.2)
    found = simulate(train, 3, training, "plain", "sgd", stage, 0.2).results
    close(found, weights)
    assert all(each == found[0][1] for _, each in found)  # to the bit
    assert found[0][1] == pytest.approx(norms, rel=1e-12)
    assert max(norms) > 0.2


def measured(comm, training, stage, steps=2):
    """A rank's bytes: in memory after backward and after the first step, and sent in each step."""
    comm = TracingComm(comm)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 3))
    optimizer = ShardedOptimizer(model.parameters(), comm, lambda s: torch.optim.SGD(s, 0.1, momentum=0.9), stage, 1e-4)
    found = []
    with meter(model, optimizer.optimizer, *optimizer.optimizer.param_groups[0]["params"]) as m:
        for _ in range(steps):
            since = len(comm.trace)
            model(torch.ones(2, 7)).square().mean().backward()
            assert optimizer.clip(float("inf")) > 0
            gradients = m.live["gradients"]
            optimizer.step()
            found.append((gradients, m.live, training.sent(comm.trace, since)))
    return sum(param.numel() for param in model.parameters()), len(list(model.parameters())), found


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("stage", [1, 2])
def test_bytes_in_memory_and_on_the_wire_are_the_formulas(training, stage, p):
    results = simulate(measured, p, training, stage).results
    numel, params, _ = results[0]
    ballots = TRAFFIC["recursive_doubling"](p, 8 * (10 + params)).nbytes + TRAFFIC["recursive_doubling"](p, 8).nbytes
    for step in range(2):
        steps = [found[step] for _, _, found in results]
        assert sum(sent for _, _, sent in steps) == 2 * (p - 1) * 4 * numel + ballots
        kept = [
            live["parameters"] + live["optimizer states"] + (gradients if stage == 2 else 4 * numel)
            for gradients, live, _ in steps
        ]
        formula = zero(numel, p, stage, optimizer=4, weight=4, gradient=4)
        assert sum(kept) == round(p * formula)  # together to the byte,
        most = -(-numel // p)
        assert all(live["optimizer states"] in (4 * most, 4 * (numel // p)) for _, live, _ in steps)  # and each
        assert all(gradients in (4 * most, 4 * (numel // p)) for gradients, _, _ in steps if stage == 2)


def test_stage_2_frees_gradients_while_backward_goes_on(training):
    """Of a deep model one or two layers' gradients live at a time, beside the shares."""

    def peak(comm, stage):
        model = nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(12)])
        shards = ShardedOptimizer(model.parameters(), comm, lambda s: torch.optim.SGD(s, 0.1), stage, 1e-4)
        with meter(model) as m:
            model(torch.ones(1, 16)).sum().backward()
            shards.clip(1.0)
        return m.peak.total - m.live["parameters"]

    layer = 4 * 16 * 16
    assert min(simulate(peak, 4, 1).results) >= 12 * layer
    assert max(simulate(peak, 4, 2).results) <= (12 / 4 + 4) * layer + 1000


def test_stage_1_adds_up_several_backward_passes(training):
    def accumulate(comm):
        model = training.build("plain")
        optimizer = ShardedOptimizer(model.parameters(), comm, training.makes["sgd"])
        for n in training.batches:
            x, y = training.batch(2 * n)
            for half in (slice(0, n), slice(n, 2 * n)):
                (cross_entropy(model(x[half]), y[half]) / 2).backward()
            optimizer.step()
        return dict(model.named_parameters())

    serial = simulate(accumulate, 1).results[0]
    model = training.build("plain")
    optimizer = training.makes["sgd"](model.parameters())
    for n in training.batches:
        optimizer.zero_grad()
        x, y = training.batch(2 * n)
        cross_entropy(model(x), y).backward()
        optimizer.step()
    for found in (serial, *simulate(accumulate, 3).results):
        close([(found, None)], dict(model.named_parameters()))


def test_a_step_is_left_out_on_all_ranks_where_one_has_nan(training):
    def skip(comm):
        model = training.build("plain")
        before = [param.detach().clone() for param in model.parameters()]
        optimizer = ShardedOptimizer(model.parameters(), comm, training.makes["sgd"], stage=2)
        x, _ = training.batch(5)
        (model(x).sum() * (float("nan") if comm.rank == 1 else 1.0)).backward()
        norm = optimizer.clip(1.0)
        optimizer.zero_grad()
        return norm, all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    for norm, same in simulate(skip, 3).results:
        assert norm != norm
        assert same


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda comm, model: {"stage": 3}, "stage 3 is FullyShardedDataParallel"),
        (lambda comm, model: {"bucket_mb": 0}, "more than 0 MB"),
        (lambda comm, model: {"make": torch.optim.LBFGS}, "needs a parameter's elements together"),
        (lambda comm, model: {"params": [nn.Parameter(torch.ones(2 + comm.rank))]}, "rank 1 has other parameters"),
        (lambda comm, model: {"params": [torch.nn.Parameter(torch.ones(2), requires_grad=False)]}, "nothing to step"),
    ],
)
def test_what_cannot_work_is_said_at_the_start(training, wrong, words):
    def begin(comm):
        model = training.build("plain")
        right = {"params": model.parameters(), "make": training.makes["sgd"]}
        with pytest.raises(ValueError, match=words):
            ShardedOptimizer(comm=comm, **(right | wrong(comm, model)))

    simulate(begin, 2)


def test_mistakes_in_a_step_are_named(training):
    def mistakes(comm):
        model = training.build("plain")
        optimizer = ShardedOptimizer(model.parameters(), comm, training.makes["sgd"], stage=2)
        x, _ = training.batch(5)
        model(x).sum().backward()
        with pytest.raises(RuntimeError, match="the other ranks wait for the rest"):
            optimizer.zero_grad()
        with pytest.raises(RuntimeError, match="call it before backward"):
            optimizer.count(3)
        with pytest.raises(RuntimeError, match="a second backward came before step"):
            model(x).sum().backward()
        optimizer.step()
        optimizer.count(0)
        optimizer.step()

    with pytest.raises(RankError, match="no rank has a sample"):
        simulate(mistakes, 2)


def test_a_model_that_was_converted_afterwards_is_no_silent_standstill(training):
    def convert(comm):
        model = training.build("plain")
        optimizer = ShardedOptimizer(model.parameters(), comm, training.makes["sgd"])
        model.float()
        with pytest.raises(RuntimeError, match="has left the memory"):
            optimizer.step()

    simulate(convert, 1)


@pytest.mark.parametrize("p", [2, 3])
def test_stage_2_adds_up_several_passes_and_holds_one(p):
    """Three passes give the step of their sum; each pass's gradients leave when the next one's first comes."""
    passes, params = 3, [torch.zeros(5, 4, dtype=torch.float64), torch.zeros(7, dtype=torch.float64)]

    def rank(comm):
        weights = [nn.Parameter(param.clone()) for param in params]
        optimizer = ShardedOptimizer(weights, comm, lambda shards: torch.optim.SGD(shards, lr=1.0), 2, TINY_MB)
        held = []
        with optimizer.adding():
            for k in range(passes):
                sum((weight * (k + 1 + comm.rank)).sum() for weight in weights).backward()
                held.append(sum(weight.grad is not None and not isinstance(weight.grad, Gone) for weight in weights))
        optimizer.step()
        return [weight.detach().clone() for weight in weights], held

    results = simulate(rank, p).results
    expected = -sum(k + 1 + r for k in range(passes) for r in range(p)) / p
    for weights, held in results:
        assert all(torch.allclose(weight, torch.full_like(weight, expected)) for weight in weights)
        assert held[0] == 2
        assert max(held[1:]) < 2, "the first gradient of a pass has left with those of the pass before"
