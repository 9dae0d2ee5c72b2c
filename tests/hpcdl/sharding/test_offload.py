"""Offloaded states: the same bits, three parameters' states in memory at most, and moves while others are updated."""

import threading

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.memory import meter
from hpcdl.sharding import Disk, Host, Offloaded, ShardedOptimizer, save, with_states

STORES = {"disk": Disk, "host": lambda folder: Host()}
OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.3),  # whose state is None
    "momentum": lambda params: torch.optim.SGD(params, lr=0.3, momentum=0.9),
    "amsgrad": lambda params: torch.optim.AdamW(params, lr=0.05, weight_decay=0.1, amsgrad=True),
}


def train(training, comm, make, steps=4):
    """The weights after some steps on this rank's parts of the batches."""
    model = training.build("plain")
    optimizer = ShardedOptimizer(model.parameters(), comm, make)
    training.learn(model, optimizer, comm, training.batches[:steps])
    return [param.detach().clone() for param in model.parameters()]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("p", [1, 3])
def test_the_weights_are_those_without_to_the_bit(training, tmp_path, p, kind, store, ahead):
    make = OPTIMIZERS[kind]

    def away(shards):
        return Offloaded(make(shards), STORES[store](tmp_path), ahead)

    def run(comm):
        return train(training, comm, make), train(training, comm, away)

    for here, offloaded in simulate(run, p).results:
        assert all(torch.equal(a, b) for a, b in zip(here, offloaded, strict=True))
    assert not list(tmp_path.iterdir()), "scratch is removed"


def test_parameters_without_gradients_stay_and_groups_keep_their_rates(tmp_path):
    def run(offload):
        a, b, c = (nn.Parameter(torch.full((3,), value)) for value in (1.0, 2.0, 3.0))
        inner = torch.optim.Adam([{"params": [a, c], "lr": 0.1}, {"params": [b], "lr": 0.01}])
        optimizer = Offloaded(inner, Disk(tmp_path)) if offload else inner
        schedule = torch.optim.lr_scheduler.StepLR(inner, 1)
        for step in range(4):
            for param in (a, b, c):
                param.grad = None if step % 2 and param is c else param.detach() + step
            optimizer.step()
            schedule.step()
        assert [len(group["params"]) for group in inner.param_groups] == [2, 1]
        return a, b, c

    for here, away in zip(run(False), run(True), strict=True):
        assert torch.equal(here, away)


SIZES = (1000, 3000, 2000, 500, 4000, 1500)


def parameters():
    params = [nn.Parameter(torch.ones(size, dtype=torch.float64)) for size in SIZES]
    for param in params:
        param.grad = torch.ones_like(param)
    return params


STEP = 4  # bytes of Adam's `step`, which each parameter has
STATES = [2 * 8 * size + STEP for size in SIZES]


@pytest.mark.parametrize(
    ("ahead", "most"),
    [(False, max(STATES)), (True, max(sum(STATES[i : i + 3]) for i in range(len(SIZES))))],
)
def test_at_most_a_window_of_states_is_in_memory_and_none_between_steps(tmp_path, ahead, most):
    params = parameters()
    optimizer = Offloaded(torch.optim.Adam(params), Disk(tmp_path), ahead)
    optimizer.step()  # the first makes the states
    assert sum(path.stat().st_size for path in optimizer.state._store.folder.iterdir()) == sum(STATES)
    with meter(*params, optimizer.optimizer) as m:
        optimizer.step()
        assert m.live["optimizer states"] == 0
    assert m.highest["optimizer states"] == most
    assert m.highest["temporaries"] <= 2 * 8 * max(SIZES) + most  # before an op has seen that they are states
    assert m.peak.total - 16 * sum(SIZES) <= most + 2 * 8 * max(SIZES), "weights, gradients, a window, Adam's own"


class Meets(Disk):
    """A store whose reads, except the first, wait for an update that is under way, and tell it that they are."""

    def __init__(self, folder, seconds):
        super().__init__(folder)
        self.seconds, self.updating, self.moving = seconds, threading.Event(), threading.Event()

    def read(self, number, out):
        if number and self.updating.wait(self.seconds):
            self.moving.set()
        super().read(number, out)


class Watched(torch.optim.SGD):
    """SGD whose update of a parameter, except the last, ends when the next one's states are on their way."""

    def step(self, closure=None):
        if self.store and self.param_groups[0]["params"][0] is not self.last:
            self.store.updating.set()
            self.met += self.store.moving.wait(self.store.seconds)
            self.store.updating.clear()
            self.store.moving.clear()
        return super().step(closure)


@pytest.mark.parametrize(("ahead", "met", "seconds"), [(True, 3, 60), (False, 0, 0.05)])
def test_states_arrive_while_the_parameter_before_is_updated(tmp_path, ahead, met, seconds):
    params = parameters()[:4]
    inner = Watched(params, lr=0.1, momentum=0.9)
    inner.store, inner.last, inner.met = None, params[-1], 0
    inner.step()  # the first makes the states
    store = Meets(tmp_path, seconds)
    optimizer = Offloaded(inner, store, ahead)  # which tries a copy: it has nothing to wait for
    inner.store = store
    optimizer.step()
    assert inner.met == met


def test_checkpoint_restores_offloaded_states(training, tmp_path):
    def run(comm, first, last, offload):
        model = training.build("plain", seed=first)

        def make(shards):
            inner = training.makes["adamw"](shards)
            return Offloaded(inner, Disk(tmp_path / "scratch")) if offload else inner

        optimizer = ShardedOptimizer(model.parameters(), comm, make)
        if first:
            training.resume(tmp_path, optimizer, comm)
        training.learn(model, optimizer, comm, training.batches[first:last])
        save(tmp_path, last, with_states(optimizer.shards(), optimizer.optimizer), comm)
        return model

    simulate(run, 3, 0, 2, True)
    simulate(run, 2, 2, 3, False)
    training.assert_as_serial(simulate(run, 4, 3, 4, True).results)


def test_unsuitable_optimizer_or_disk_is_refused(tmp_path):
    with pytest.raises(ValueError, match="LBFGS updates all parameters together"):
        Offloaded(torch.optim.LBFGS([nn.Parameter(torch.ones(1))]), Host())

    def adafactor(comm):
        model = nn.Linear(2, 2)
        make = torch.optim.Adafactor
        with pytest.raises(ValueError, match="Adafactor needs a parameter's elements together"):
            ShardedOptimizer(model.parameters(), comm, lambda shards: Offloaded(make(shards), Host()))

    simulate(adafactor, 1)
    params = parameters()
    optimizer = Offloaded(torch.optim.Adam(params), Disk(tmp_path))
    optimizer.step()
    folder = optimizer.state._store.folder
    (folder / "2").write_bytes(b"short")
    with pytest.raises(OSError, match="ends 15999 bytes too soon"):
        optimizer.step()
    (folder / f"{len(SIZES) + 2}").mkdir()  # another optimizer's numbers begin there
    with pytest.raises(OSError, match=f"{folder}/{len(SIZES) + 2}"):
        Offloaded(torch.optim.Adam(params), optimizer.state._store).step()


@pytest.mark.gpu
def test_offloaded_states_on_a_gpu(tmp_path, need):
    need("gpu", torch.cuda.is_available(), "states in pinned memory")

    def run(store):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
        inner = torch.optim.Adam(model.parameters(), foreach=False)
        optimizer = Offloaded(inner, store) if store else inner
        for _ in range(3):
            model(torch.ones(4, 64, device="cuda")).square().mean().backward()
            optimizer.step()
            model.zero_grad()
        return [param.detach().cpu() for param in model.parameters()]

    right = run(None)
    for store in (Host(), Disk(tmp_path)):
        assert all(torch.equal(a, b) for a, b in zip(right, run(store), strict=True))
