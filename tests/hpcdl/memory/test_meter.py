"""The memory meter against torch's own MemTracker, and by hand."""

import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.checkpoint import checkpoint

from hpcdl.comm import simulate
from hpcdl.memory import KINDS, meter, saved
from hpcdl.nn.lenet import lenet5


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.embed(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x):
        return x + self.conv(x)


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 8)), lambda: torch.randn(16, 40)),
    "lenet": (lambda: lenet5(), lambda: torch.randn(4, 1, 28, 28)),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        lambda: torch.randn(2, 6, 16),
    ),
    "tied": (Tied, lambda: torch.randint(0, 50, (3, 7))),
    "residual with buffers": (Residual, lambda: torch.randn(3, 4, 9, 9)),
    "recomputed": (Recomputed, lambda: torch.randn(11, 24)),
}
NAMES = {  # MemTracker's
    "parameters": "Parameter",
    "buffers": "Buffer",
    "gradients": "Gradient",
    "optimizer states": "Optstate",
    "activations": "Activation",
    "temporaries": "Temp",
    "others": "Other",
}


def steps(model, optimizer, x, n=2):
    """Yields after forward, backward and update of each of `n` steps."""
    for _ in range(n):
        loss = model(x).square().mean()
        yield "forward"
        loss.backward()
        yield "backward"
        optimizer.step()
        optimizer.zero_grad()
        del loss
        yield "update"


def adam(model):
    return torch.optim.Adam(model.parameters(), foreach=False)


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


@pytest.mark.parametrize("make_optimizer", [adam, sgd])
@pytest.mark.parametrize("name", MODELS)
def test_equals_torchs_tracker_at_each_moment(name, make_optimizer):
    make_model, make_input = MODELS[name]
    torch.manual_seed(0)
    model, x = make_model(), make_input()
    optimizer = make_optimizer(model)
    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    cpu = torch.device("cpu")
    theirs = {"total": [], **{kind: [] for kind in KINDS}}
    with tracker:
        for moment in steps(model, optimizer, x):
            snap = tracker.get_tracker_snapshot("current")[cpu]
            theirs["total"].append(snap["Total"])
            for kind, label in NAMES.items():
                theirs[kind].append(snap.get(label, 0))
            if moment == "update":
                tracker.reset_mod_stats()
    their_peak = tracker.get_tracker_snapshot("peak")[cpu]["Total"]

    torch.manual_seed(0)
    model, x = make_model(), make_input()
    optimizer = make_optimizer(model)
    ours = {"total": [], **{kind: [] for kind in KINDS}}
    with meter(model, optimizer, x) as m:
        for _ in steps(model, optimizer, x):
            live = m.live
            ours["total"].append(live.total)
            for kind in KINDS:
                ours[kind].append(live[kind])
    assert ours["total"] == theirs["total"]
    assert m.peak.total == their_peak
    for kind in ("parameters", "buffers", "gradients", "optimizer states", "others"):
        assert ours[kind] == theirs[kind], kind
    assert [a + t for a, t in zip(ours["activations"], ours["temporaries"], strict=True)] == [
        a + t for a, t in zip(theirs["activations"], theirs["temporaries"], strict=True)
    ]


def test_by_hand():
    x = torch.ones(1000)
    with meter(x) as m:
        y = x * 2
        view = y[10:20]
        with torch.no_grad():
            z = x + 1
        assert m.live == {**dict.fromkeys(KINDS, 0), "others": 4000, "activations": 4000, "temporaries": 4000}
        del y
        assert m.live.total == 12_000, "a view keeps all of it"
        del view, z
        assert m.live.total == 4000
    assert m.peak.total == 12_000
    assert m.highest["activations"] == 4000


def test_what_came_from_outside_counts_when_it_is_used():
    before, numpy_s = torch.zeros(500), np.zeros(500)
    with meter() as m:
        assert m.live.total == 0
        before.view(5, 100)
        assert m.live == {**dict.fromkeys(KINDS, 0), "others": 2000}
        hidden = torch.from_numpy(numpy_s)
        assert m.live["others"] == 6000
        del hidden


def test_a_storage_that_is_resized_counts_at_once():
    with meter() as m:
        x = torch.empty(256)
        x.untyped_storage().resize_(0)
        assert m.live.total == 0
        x.untyped_storage().resize_(2048)
        assert m.live.total == 2048
    assert m.peak.total == 2048
    assert not hasattr(torch.UntypedStorage.resize_, "__wrapped__"), "torch's own again"


def test_gradients_without_autograd_are_gradients():
    p = nn.Parameter(torch.zeros(100))
    with meter(p) as m:
        p.grad = torch.ones(100)
        assert m.live["gradients"] == 400
        p.grad = None
        assert m.live["gradients"] == 0


def test_frozen_parameters_have_no_gradients():
    net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
    net[0].requires_grad_(False)
    x = torch.randn(5, 20)
    with meter(net, x) as m:
        net(x).sum().backward()
        assert m.live["parameters"] == (20 * 30 + 30 + 30 * 10 + 10) * 4
        assert m.live["gradients"] == (30 * 10 + 10) * 4
        assert m.live["activations"] == m.live["temporaries"] == 0


def test_marks():
    with meter() as m:
        momenta = torch.zeros(64)
        m.mark("optimizer states", momenta)
        assert m.live["optimizer states"] == 256
        assert m.live["activations"] == 0
        with pytest.raises(ValueError, match="the kinds are parameters"):
            m.mark("weights", momenta)
    with pytest.raises(TypeError, match="modules, optimizers and tensors"):
        meter([momenta])


def test_peak_from_now():
    with meter() as m:
        torch.empty(10_000).zero_()
        m.reset_peak()
        kept = torch.empty(10)
    assert m.peak.total == kept.nbytes


def test_in_place_and_views_cost_nothing():
    x = torch.zeros(100)
    with meter(x) as m, torch.no_grad():
        x += 1
        x.view(10, 10).t().mul_(2)
    assert m.peak.total == 400


def test_sparse_tensors():
    with meter() as m:
        s = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (4,), check_invariants=False)
        assert m.live.total == 2 * 8 + 2 * 4
        assert s.shape == (4,)


def test_each_simulated_rank_has_its_own_account():
    def work(comm):
        with meter() as m:
            x = torch.zeros(100 * (comm.rank + 1))
            comm.barrier()
            for _ in range(3):
                comm.compute(0.1)
                x = x + 1
            comm.barrier()
            return m.live.total, m.peak.total

    assert simulate(work, 3).results == [(400, 800), (800, 1600), (1200, 2400)]


def test_threads_do_not_count_each_others():
    seen = []

    def other():
        with meter() as m:
            torch.zeros(7)
            seen.append(m.peak.total)

    with meter() as m:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert m.peak.total == 0
    assert seen == [28]


def test_backward_on_ranks_counts_gradients():
    def work(comm):
        w = nn.Parameter(torch.ones(50))
        with meter(w) as m:
            (w * w).sum().backward()
            return m.live["gradients"], m.live["activations"]

    assert simulate(work, 2).results == [(200, 0)] * 2


def test_saved_tensors():
    net = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 5))
    x = torch.randn(3, 10)
    with saved(x, *net.parameters()) as kept:
        net(x).sum()
    assert kept.bytes == 3 * 20 * 4, "tanh's output, which the next layer needs too"
    with saved(x, *net.parameters()) as kept, torch.no_grad():
        net(x)
    assert kept.bytes == 0


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_costs_less_than_a_second_step(one_thread):
    net = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.ReLU())))
    optimizer, x = torch.optim.Adam(net.parameters()), torch.randn(64, 512)

    def seconds(context):
        with context:
            begin = time.thread_time()
            for _ in steps(net, optimizer, x, 1):
                pass
            return time.thread_time() - begin

    seconds(nullcontext())
    pairs = [(seconds(nullcontext()), seconds(meter(net, optimizer, x))) for _ in range(15)]
    assert min(metered for _, metered in pairs) < 2 * min(plain for plain, _ in pairs)
