"""ShardedOptimizer is a torch optimizer: groups, states, schedules, closures; what is not elementwise is refused."""

import copy
import io
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.weak import WeakIdKeyDictionary

from hpcdl.comm import simulate
from hpcdl.ddp import apart, reducer
from hpcdl.sharding import Disk, Host, Offloaded, ShardedOptimizer, steps
from hpcdl.training import LAMB, LARS

from .small import batch, close, learn, network, weights

TINY_MB = 200 / 2**20
MAKES = {
    "adamw": partial(torch.optim.AdamW, lr=0.03, weight_decay=0.1),
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "amsgrad": partial(torch.optim.Adam, lr=0.03, amsgrad=True),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.01, centered=True),
    "lars": partial(LARS, lr=0.5, weight_decay=0.1, eta=0.1),
    "lamb": partial(LAMB, lr=0.05, weight_decay=0.1),
}


def decay_groups(model):
    """nanoGPT's: weight decay for matrices alone."""
    params = [param for param in model.parameters() if param.requires_grad]
    matrices = [param for param in params if param.dim() > 1]
    return [{"params": matrices}, {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize(("p", "stage"), [(1, 1), (2, 2), (3, 1), (3, 2)])
def test_groups_and_schedules_are_torchs(p, make, stage):
    def build(of, model):
        optimizer = of(decay_groups(model))
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 8, cycle_momentum=False)

    model = network()
    optimizer, schedule = build(MAKES[make], model)
    learn(model, optimizer, range(5), schedule=schedule)

    def rank(comm):
        mine = network()
        of = partial(ShardedOptimizer, comm=comm, make=MAKES[make], stage=stage, bucket_mb=TINY_MB)
        sharded, schedule = build(of, mine)
        learn(mine, sharded, range(5), comm, schedule)
        return weights(mine), [group["lr"] for group in sharded.param_groups]

    for found, rates in simulate(rank, p).results:
        close(found, weights(model))
        assert rates == [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize(("p", "q"), [(1, 2), (3, 2)])
def test_a_state_is_torchs_on_any_number_of_ranks(p, q, make):
    model = network()
    optimizer = MAKES[make](model.parameters())
    learn(model, optimizer, range(3))
    serial = copy.deepcopy(optimizer.state_dict())
    middle = weights(model)
    learn(model, optimizer, range(3, 6))

    def first(comm):
        mine = network()
        sharded = ShardedOptimizer(mine.parameters(), comm, MAKES[make], bucket_mb=TINY_MB)
        assert sharded.state_dict()["state"] == {}
        learn(mine, sharded, range(3), comm)
        return sharded.state_dict()

    def second(comm, state):
        mine = network()
        for param, value in zip(mine.parameters(), middle, strict=True):
            param.data.copy_(value)
        sharded = ShardedOptimizer(
            mine.parameters(), comm, lambda s: MAKES[make](s, lr=9.0), stage=2, bucket_mb=TINY_MB
        )
        sharded.load_state_dict(state)
        learn(mine, sharded, range(3, 6), comm)
        return weights(mine)

    states = simulate(first, p).results
    for state in states:
        assert state["state"].keys() == serial["state"].keys()
        assert state["param_groups"] == serial["param_groups"]
        for i, each in serial["state"].items():
            close(
                [state["state"][i][key] for key in each if each[key] is not None],
                [v for v in each.values() if v is not None],
            )
    for state in (states[0], serial):
        for found in simulate(second, q, state).results:
            close(found, weights(model))


def test_a_state_of_other_groups_is_refused():
    def rank(comm):
        sharded = ShardedOptimizer(network().parameters(), comm, torch.optim.Adam)
        other = torch.optim.Adam(decay_groups(network())).state_dict()
        with pytest.raises(ValueError, match=r"groups of \[2, 4\] parameters, and here are groups of \[6\]"):
            sharded.load_state_dict(other)

    simulate(rank, 2)


@pytest.mark.parametrize("p", [1, 3])
def test_offloaded_states_are_whole_too(p, tmp_path):
    def rank(comm):
        found = []
        for make in (MAKES["adamw"], lambda shards: Offloaded(MAKES["adamw"](shards), Disk(tmp_path))):
            mine = network()
            sharded = ShardedOptimizer(mine.parameters(), comm, make, bucket_mb=TINY_MB)
            learn(mine, sharded, range(2), comm)
            state = sharded.state_dict()
            sharded.load_state_dict(state)
            learn(mine, sharded, range(2), comm)
            found.append((weights(mine), {i: sorted(each) for i, each in state["state"].items()}))
        return found

    for plain, offloaded in simulate(rank, p).results:
        assert plain[1] == offloaded[1]
        close(plain[0], offloaded[0])


@pytest.mark.parametrize(("p", "stage"), [(1, 1), (2, 2), (3, 1), (3, 2)])
def test_layers_freeze_thaw_and_come_later(p, stage):
    """A closure, layers that were frozen at the start and thawed, others frozen on the way, and a new group."""

    def go(model, extra, make, comm=None):
        model[0].requires_grad_(False)
        optimizer = make([{"params": list(model.parameters())}])
        share = slice(None) if comm is None else slice(comm.rank, None, comm.size)
        for step in range(6):
            if step == 2:
                model[0].requires_grad_(True)
                model[3].requires_grad_(False)
            if step == 4:
                optimizer.add_param_group({"params": extra.parameters(), "lr": 0.5})

            def closure(step=step):
                optimizer.zero_grad()
                x, y = (t[share] for t in batch(step))
                loss = mse_loss(extra(model(x)), y)
                loss.backward()
                return loss

            if comm is not None:
                optimizer.count(len(batch(step)[0][share]))
            assert optimizer.step(closure).requires_grad
            extra.zero_grad() if step < 4 else None
        return weights(model) + weights(extra)

    def extra():
        torch.manual_seed(5)
        return nn.Linear(2, 2).double()

    expected = go(network(), extra(), MAKES["adamw"])

    def rank(comm):
        make = partial(ShardedOptimizer, comm=comm, make=MAKES["adamw"], stage=stage, bucket_mb=TINY_MB)
        return go(network(), extra(), make, comm)

    for found in simulate(rank, p).results:
        close(found, expected)


def test_a_step_of_an_unwrapped_network_looks_at_no_parameter(monkeypatch):
    """The hooks are called at every optimizer's step in the process: without wrappers they return at once."""
    for module, names in ((steps, ("_pieces", "_wholes", "_dense")), (apart, ("_known",)), (reducer, ("_reducers",))):
        for name in names:
            monkeypatch.setattr(module, name, WeakIdKeyDictionary())
    unreadable = object()  # it has no `param_groups`
    for hook in (steps._before, steps._after, reducer._require_wrapped):
        assert hook(unreadable) is None


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickle.dumps, lambda x: torch.save(x, io.BytesIO())])
def test_a_copy_is_refused_and_the_state_dict_is_copied(copied):
    def run(comm):
        params = [nn.Parameter(torch.ones(5))]
        here = ShardedOptimizer(params, comm, lambda shards: torch.optim.SGD(shards, 0.1))
        away = Offloaded(torch.optim.SGD(params, 0.1), Host())
        for optimizer in (here, away):
            with pytest.raises(TypeError, match=rf"{type(optimizer).__name__} cannot be copied or pickled.*state_dict"):
                copied(optimizer)
            copied(optimizer.state_dict())
        return True

    assert simulate(run, 2).results == [True] * 2
