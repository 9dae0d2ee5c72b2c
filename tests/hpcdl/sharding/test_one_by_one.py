"""Offloaded optimizers of all kinds against the plain ones, to the bit: right, or refused when they are made."""

import threading

import pytest
import torch
from torch import nn

from hpcdl.sharding import Disk, Host, Offloaded
from hpcdl.training import LAMB, LARS


class Own(torch.optim.Optimizer):
    """Momentum; what the classes below change is what a parameter's step reads."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "step": 0})
        self.gain, self.calls, self.lock = 1.0, 0, threading.Lock()

    def factor(self, group, state, param):
        state["step"] = state.get("step", 0) + 1
        return state["step"]

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] += self.counts_in_group
            self.calls += self.counts_itself
            for param in (param for param in group["params"] if param.grad is not None):
                state = self.state[param]
                state.setdefault("mean", torch.zeros_like(param)).mul_(0.9).add_(param.grad)
                param.sub_(state["mean"] / self.factor(group, state, param), alpha=group["lr"] * self.gain)

    counts_in_group = counts_itself = 0


class ByGroup(Own):
    counts_in_group = 1

    def factor(self, group, state, param):
        return group["step"]


class ByItself(Own):
    counts_itself = 1

    def factor(self, group, state, param):
        return self.calls


class ByNorm(Own):
    def factor(self, group, state, param):
        return sum(each.grad.norm() for group in self.param_groups for each in group["params"] if each.grad is not None)


class ByStates(Own):
    def factor(self, group, state, param):
        return sum(each["mean"].norm() for each in self.state.values())


class BySize(Own):
    def factor(self, group, state, param):
        return param.norm() + param.dim()


RIGHT = {
    "adamw": torch.optim.AdamW,
    "momentum": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9),
    "tensor": lambda params: torch.optim.Adam(params, lr=torch.tensor(0.1)),
    "lars": lambda params: LARS(params, lr=0.1),
    "lamb": lambda params: LAMB(params, lr=0.1),
    "own": Own,
    "size": BySize,
}
REFUSED = {"group": ByGroup, "itself": ByItself, "norm": ByNorm, "states": ByStates}
STORES = {"disk": Disk, "host": lambda folder: Host()}


def network(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.Linear(32, 3)).double()
    return model.to(memory_format=torch.channels_last)


def trained(make, steps=3, models=1, between=None):
    """The weights of `models` networks, each with an optimizer, after some steps in turn."""
    pairs = [(model, make(model.parameters())) for model in map(network, range(models))]
    for number in range(steps):
        x = torch.randn(2, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(number))
        for model, optimizer in pairs:
            model.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if between:
                between(optimizer)
    return [param.detach() for model, _ in pairs for param in model.parameters()]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", RIGHT)
def test_two_optimizers_on_one_store_train_as_without(tmp_path, kind, store):
    here = STORES[store](tmp_path)
    away = trained(lambda params: Offloaded(RIGHT[kind](params), here), models=2)
    for x, y in zip(trained(RIGHT[kind], models=2), away, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("kind", REFUSED)
def test_an_optimizer_that_needs_all_parameters_is_refused(kind):
    model = network()
    before = [param.detach().clone() for param in model.parameters()]
    optimizer = REFUSED[kind](model.parameters())
    with pytest.raises(ValueError, match=f"{type(optimizer).__name__} does not go parameter by parameter"):
        Offloaded(optimizer, Host())
    assert all(torch.equal(x, y) for x, y in zip(before, model.parameters(), strict=True))
    assert optimizer.calls == optimizer.param_groups[0]["step"] == len(optimizer.state) == 0


def test_an_optimizer_whose_trial_fails_is_refused():
    class Broken(Own):
        def factor(self, group, state, param):
            raise RuntimeError("only for large parameters")

    with pytest.raises(ValueError, match=r"Broken cannot step small parameters .*only for large parameters"):
        Offloaded(Broken(network().parameters()), Host())


def test_hooks_run_once_per_step_and_a_schedule_steps_the_original():
    called = []
    optimizer = Own(network().parameters())
    optimizer.register_step_pre_hook(lambda it, *_: called.append(len(it.param_groups[0]["params"])))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    offloaded = Offloaded(optimizer, Host())
    for param in optimizer.param_groups[0]["params"]:
        param.grad = torch.ones_like(param)
    offloaded.step()
    schedule.step()
    assert called == [6, "after"]
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_state_dict_has_all_states_or_says_where_they_are():
    def through_a_state(optimizer):
        if isinstance(optimizer, Offloaded):
            with pytest.raises(RuntimeError, match=r"call state_dict\(\) of the Offloaded"):
                optimizer.optimizer.state_dict()
            saved = optimizer.state_dict()
            assert len(saved["state"]) == 6
            for state in saved["state"].values():
                for value in state.values():
                    value.mul_(2)
            optimizer.load_state_dict(saved)
            assert not optimizer.optimizer.state
            return
        for state in optimizer.state.values():
            for value in state.values():
                value.mul_(2)

    away = trained(lambda params: Offloaded(torch.optim.Adam(params), Host()), between=through_a_state)
    for x, y in zip(trained(torch.optim.Adam, between=through_a_state), away, strict=True):
        assert torch.equal(x, y)
