"""Each `plain.py` holds a whole idea in one sitting: its value, messages and memory are those of the class to use."""

import math
import weakref
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm, mse_loss, scaled_dot_product_attention

import hpcdl
from hpcdl.comm import TracingComm, simulate
from hpcdl.consistency import Server, work
from hpcdl.consistency import plain as server
from hpcdl.cost.collectives import TRAFFIC
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.plain import PlainDDP
from hpcdl.memory import meter
from hpcdl.parallel.pipeline import Layers, cut_batch, run_stage
from hpcdl.parallel.pipeline import plain as pipeline
from hpcdl.parallel.schedules import SCHEDULES
from hpcdl.parallel.tensor import plain as tensor
from hpcdl.sharding import FullyShardedDataParallel
from hpcdl.sharding.plain import Sharded

ROOMS = ["consistency", "ddp", "parallel/pipeline", "parallel/tensor", "sharding"]
WIDTHS = (5, 8, 7, 6, 3)


@pytest.mark.parametrize("room", ROOMS)
def test_it_is_read_in_one_sitting(room):
    path = Path(hpcdl.__file__).parent / room / "plain.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 150


def layers():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(a, b), nn.Tanh()).double() for a, b in pairwise(WIDTHS)]


def batch(rows=12):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, 5, generator=generator).double(), torch.randn(rows, 3, generator=generator).double()


def part(comm, rows=12):
    return [x.tensor_split(comm.size)[comm.rank] for x in batch(rows)]


def steps(model, x, y, synchronize):
    """Train three steps, and return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        synchronize()
        optimizer.step()
        losses.append(loss.item())
    return losses


def one_machine(p, rows=12):
    """Return the mean losses and the weights of a training in one process."""
    model = nn.Sequential(*layers())
    losses = steps(model, *batch(rows), lambda: None)
    return losses, torch.cat([param.detach().view(-1) for param in model.parameters()])


def agree(results, p):
    """Compare what the ranks return, their own losses and all weights, with one machine's."""
    losses, weights = one_machine(p)
    torch.testing.assert_close(torch.tensor([found[0] for found in results]).mean(0), torch.tensor(losses))
    for _, found in results:
        torch.testing.assert_close(found, weights, rtol=1e-12, atol=1e-12)


# -- data parallelism --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("numel", [1, 60, 10**6])
def test_ddp_is_one_machine(p, numel):
    def rank(comm):
        model = nn.Sequential(*layers())
        with torch.no_grad():
            model[0][0].bias += comm.rank  # rank 0's count
        ddp = PlainDDP(model, comm, numel)
        losses = steps(ddp, *part(comm), ddp.synchronize)
        return losses, torch.cat([param.detach().view(-1) for param in model.parameters()])

    agree(simulate(rank, p).results, p)


@pytest.mark.parametrize("wrap", [lambda model, comm: PlainDDP(model, comm, 1), DistributedDataParallel])
def test_ddp_sends_during_backward_what_the_formula_says(wrap):
    """A layer's backward takes a second, and its message too: all messages but the last are hidden."""

    class Timed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.comm = comm
            return x.view_as(x)

        @staticmethod
        def backward(ctx, dy):
            ctx.comm.compute(1.0)
            return dy, None

    class Slow(nn.Module):
        def __init__(self, comm):
            super().__init__()
            self.layers, self.comm = nn.ModuleList(nn.Linear(100, 100, bias=False) for _ in range(4)), comm

        def forward(self, x):
            for layer in self.layers:
                x = Timed.apply(layer(x), self.comm)
            return x

    def rank(comm):
        model = Slow(comm)
        ddp = wrap(model, comm)
        begin = comm.clock()
        ddp(torch.ones(1, 100, requires_grad=True)).sum().backward()
        in_backward = comm.clock() - begin
        ddp.synchronize()
        return in_backward, comm.clock() - begin

    found = simulate(rank, 2, beta=1 / 40_000).results
    assert all(in_backward == pytest.approx(4) for in_backward, _ in found)
    overlaps = wrap is not DistributedDataParallel  # its one bucket of 4 MB waits for all
    assert all(all_of_it == pytest.approx(5 if overlaps else 8, rel=0.01) for _, all_of_it in found)


# -- pipeline ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["one_f_one_b", "gpipe"])
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 2), (3, 1), (4, 6)])
def test_a_pipeline_is_the_class_to_use(p, m, schedule):
    widths = [5, *[8] * (p - 1), 3]

    def stage(comm):
        torch.manual_seed(comm.rank)
        return nn.Sequential(nn.Linear(*widths[comm.rank : comm.rank + 2]), nn.Tanh()).double()

    def plain(comm):
        mine = stage(comm)
        warmup = m if schedule == "gpipe" else None
        loss = pipeline.train_step(mine, cut_batch(*batch(), m), mse_loss, (8,), comm, warmup)
        return loss, [param.grad for param in mine.parameters()]

    def fast(comm):
        mine, orders = stage(comm), SCHEDULES[schedule].orders(p, m)
        rows = cut_batch(*batch(), m)
        run = run_stage(comm, [Layers(mine)], orders, rows, mse_loss, (8,), dtype=torch.float64)
        return run.loss or 0.0, [param.grad for param in mine.parameters()]

    for (loss, grads), (expected, others) in zip(simulate(plain, p).results, simulate(fast, p).results, strict=True):
        assert loss == pytest.approx(expected, rel=1e-12)
        for grad, other in zip(grads, others, strict=True):
            torch.testing.assert_close(grad, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("gpipe", "held"), [(False, [4, 3, 2, 1]), (True, [8] * 4)], ids=["1F1B", "GPipe"])
def test_a_pipeline_has_the_bubble_and_holds_the_microbatches_that_it_says(gpipe, held):
    p, m = 4, 8

    class Stage(nn.Module):
        """Work of 1 s forward and 2 s backward; it counts the microbatches between the two."""

        def __init__(self, comm):
            super().__init__()
            self.weight, self.comm, self.held, self.most = nn.Parameter(torch.ones(1)), comm, 0, 0

        def forward(self, x):
            self.comm.compute(1.0)
            self.held += 1
            self.most = max(self.most, self.held)
            out = x * self.weight
            out.register_hook(self.backward)
            return out

        def backward(self, dy):
            self.comm.compute(2.0)
            self.held -= 1

    def rank(comm):
        stage, rows = Stage(comm), [(torch.ones(1, 1), torch.ones(1, 1))] * m
        pipeline.train_step(stage, rows, mse_loss, (1,), comm, m if gpipe else None)
        return stage.most

    run = simulate(rank, p)
    assert run.results == held
    assert run.seconds == pytest.approx((m + p - 1) * 3)


# -- tensor parallelism ------------------------------------------------------------------------------------------------

HIDDEN, WIDTH, HEADS = 12, 3, 4


def matrices():
    generator = torch.Generator().manual_seed(2)
    shapes = dict.fromkeys("qkv", (HIDDEN, HIDDEN)) | {"out": (HIDDEN, HIDDEN), "a": (HIDDEN, 20), "b": (20, HIDDEN)}
    return {name: torch.randn(shape, generator=generator).double() / 4 for name, shape in shapes.items()}


def whole_block(x, weights):
    y = layer_norm(x, x.shape[-1:])
    q, k, v = ((y @ weights[name]).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for name in "qkv")
    heads = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    x = x + heads @ weights["out"]
    return x + gelu(layer_norm(x, x.shape[-1:]) @ weights["a"]) @ weights["b"]


@pytest.mark.parametrize("p", [1, 2, 4])
def test_a_split_block_is_the_whole_block_with_four_sums(p):
    x, cut = torch.randn(2, 5, HIDDEN).double(), {"out": tensor.rows, "b": tensor.rows}

    def rank(comm):
        mine = {name: cut.get(name, tensor.columns)(w, comm).requires_grad_() for name, w in matrices().items()}
        own = x.clone().requires_grad_()
        y = tensor.block(own, mine, WIDTH, comm)
        y.square().sum().backward()
        return y.detach(), own.grad, {name: w.grad for name, w in mine.items()}

    weights, own = {name: w.requires_grad_() for name, w in matrices().items()}, x.clone().requires_grad_()
    y = whole_block(own, weights)
    y.square().sum().backward()
    run = simulate(rank, p)
    for r, (found, dx, grads) in enumerate(run.results):
        torch.testing.assert_close(found, y, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(dx, own.grad, rtol=1e-12, atol=1e-12)
        for name, grad in grads.items():
            mine = weights[name].grad.tensor_split(p, 0 if name in cut else 1)[r]
            torch.testing.assert_close(grad, mine, rtol=1e-12, atol=1e-12)
    assert sum(run.bytes_sent) == 4 * TRAFFIC["ring"](p, 8 * x.numel()).nbytes


# -- ZeRO-3 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_zero_3_is_one_machine_and_the_class_to_use(p):
    def plain(comm):
        model = nn.Sequential(*(Sharded(layer, comm) for layer in layers()))
        losses = steps(model, *part(comm), lambda: None)
        return losses, torch.cat([layer.gather(layer.shard) for layer in model])

    def fast(comm):
        model = FullyShardedDataParallel(nn.Sequential(*layers()), comm)
        losses = steps(model, *part(comm), model.synchronize)
        return losses, torch.cat([value.view(-1) for value in model.state_dict().values()])

    agree(simulate(plain, p).results, p)
    agree(simulate(fast, p).results, p)


def watched(gather, alive, highest):
    """Return `gather`, which notes in `highest` how many bytes of whole weights are alive after it."""

    def gather_and_note(shard):
        whole = gather(shard)
        alive.append(weakref.ref(whole.untyped_storage()))
        highest[0] = max(highest[0], sum(kept().nbytes() for kept in alive if kept() is not None))
        return whole

    return gather_and_note


@pytest.mark.parametrize("p", [2, 3])
def test_zero_3_sends_the_formula_and_has_one_layer_whole_at_a_time(p):
    psi = [8 * sum(param.numel() for param in layer.parameters()) for layer in layers()]

    def rank(comm):
        traced = TracingComm(comm)
        model = nn.Sequential(*(Sharded(layer, traced) for layer in layers()))
        optimizer, since = torch.optim.Adam(model.parameters()), len(traced.trace)
        alive, highest = [], [0]
        for layer in model:
            layer.gather = watched(layer.gather, alive, highest)
        with meter(model, optimizer) as m:
            mse_loss(model(part(comm)[0].requires_grad_()), part(comm)[1]).backward()
            optimizer.step()
        sent = sum(event.nbytes for event in traced.trace[since:] if event.op in ("sendrecv", "isend", "send"))
        return sent, m.live, highest[0]

    found = simulate(rank, p).results
    assert sum(sent for sent, _, _ in found) == 3 * (p - 1) * sum(psi)
    for kind in ("parameters", "gradients"):
        assert sum(live[kind] for _, live, _ in found) == sum(psi)
    assert all(highest == max(psi) for _, _, highest in found)


# -- parameter server --------------------------------------------------------------------------------------------------

LR, STEPS = 0.1, 6


def start():
    return torch.arange(5.0, dtype=torch.float64)


def gradient(w, rank, k):
    return (w - rank) * (1 + k % 3) / 4


def train(comm, staleness):
    """Train with the plain server; workers take their rank in seconds. Return the weights, and the log or None."""
    w = start()
    if comm.rank == 0:
        return w, server.serve(w, comm, LR, STEPS, staleness)

    def slowly(w, k):
        comm.compute(float(comm.rank))
        return gradient(w, comm.rank, k)

    server.work(w, comm, slowly, STEPS)
    return w, None


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_server_without_staleness_is_the_class_to_use(workers):
    def fast(comm):
        if comm.rank == 0:
            return Server(comm, start(), lambda params: torch.optim.SGD(params, LR), staleness=0).serve().w
        return work(comm, start(), lambda w, k: gradient(w, comm.rank, k), STEPS)

    run = simulate(train, workers + 1, 0)
    torch.testing.assert_close(run.results[0][0], simulate(fast, workers + 1).results[0], rtol=1e-12, atol=1e-12)
    assert run.seconds == pytest.approx(STEPS * workers)  # the slowest worker's pace


@pytest.mark.parametrize("staleness", [0, 1, 2, math.inf])
def test_a_server_lets_no_worker_be_further_ahead(staleness):
    run = simulate(train, 4, staleness)
    log = run.results[0][1]
    assert sorted(log) == sorted([1, 2, 3] * STEPS)
    done, leads = {1: 0, 2: 0, 3: 0}, []
    for worker in log:
        leads.append(done[worker] - min(done.values()))
        done[worker] += 1
    assert max(leads) <= staleness
    assert (log[-3:] == [1, 2, 3]) is (staleness == 0)  # else the fastest is done long before
