"""Each `plain.py` holds a whole idea in one sitting: its value, messages and memory are those of the class to use."""

import math
import weakref
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import hpcdl
from hpcdl.comm import TracingComm, simulate
from hpcdl.consistency import Server, work
from hpcdl.consistency import plain as server
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.plain import PlainDDP
from hpcdl.memory import meter
from hpcdl.sharding import FullyShardedDataParallel
from hpcdl.sharding.plain import Sharded

ROOMS = ["consistency", "ddp", "parallel/pipeline", "parallel/tensor", "sharding"]
WIDTHS = (5, 8, 7, 6, 3)


@pytest.mark.parametrize("room", ROOMS)
def test_it_is_read_in_one_sitting(room):
    path = Path(hpcdl.__file__).parent / room / "plain.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 100


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
