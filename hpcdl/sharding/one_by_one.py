"""Test whether an optimizer steps each parameter as if it were the only one, by running a small copy of it."""

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

MOST, SIDE, STEPS, RATE = 2, 3, 3, 0.125  # parameters of a group, elements along a side, steps, and their rate
HOOKS = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"


def require_one_by_one(optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError unless `optimizer` steps small parameters one at a time as it steps them together.

    Copies of its options and attributes take some steps; it and its parameters do not change. torch's own
    optimizers are known and not tried.
    """
    groups = optimizer.param_groups
    chosen = [[param for param in group["params"] if param.numel()][:MOST] for group in groups]
    if type(optimizer).__module__.startswith("torch.optim.") or sum(map(len, chosen)) < 2:
        return
    name = type(optimizer).__name__
    with torch.random.fork_rng(devices=[]):
        try:
            together, alone = (_trained(optimizer, chosen, apart) for apart in (False, True))
        except Exception as error:
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"{name} cannot step small parameters one after another ({line}); take an optimizer that goes "
                "parameter by parameter, such as SGD, Adam or AdamW"
            ) from error
    if not all(
        torch.allclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=True) for x, y in zip(together, alone, strict=True)
    ):
        raise ValueError(
            f"{name} does not go parameter by parameter: it counts steps in its group, or steps a parameter by what "
            "others have, and here it would see one at a time; count in optimizer.state[param], or take an optimizer "
            "such as SGD, Adam or AdamW"
        )


@contextmanager
def only(optimizer: torch.optim.Optimizer, param: torch.Tensor) -> Iterator[None]:
    """Give `optimizer`, inside the block, only this parameter."""
    groups = optimizer.param_groups
    whole = [group["params"] for group in groups]
    for group, params in zip(groups, whole, strict=True):
        group["params"] = [param] if any(param is each for each in params) else []
    try:
        yield
    finally:
        for group, params in zip(groups, whole, strict=True):
            group["params"] = params


@contextmanager
def hooks_once(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Run the hooks of the optimizer's step before and after the block, and not at each step inside it."""
    before, after = kept = [getattr(optimizer, name) for name in HOOKS]
    for hook in list(before.values()):
        hook(optimizer, (optimizer,), {})
    for name in HOOKS:
        setattr(optimizer, name, OrderedDict())
    try:
        yield
    finally:
        for name, hooks in zip(HOOKS, kept, strict=True):
            setattr(optimizer, name, hooks)
    for hook in list(after.values()):
        hook(optimizer, (optimizer,), {})


def _trained(optimizer: torch.optim.Optimizer, chosen: list[list[torch.Tensor]], apart: bool) -> list[torch.Tensor]:
    """Return small parameters after some steps of a copy of `optimizer`, together or `apart`."""
    torch.manual_seed(0)
    probes = {param: _probe(param) for params in chosen for param in params}
    trial = _copy(optimizer, probes)
    for group, params in zip(trial.param_groups, chosen, strict=True):
        group["params"] = [probes[param] for param in params]
        if "lr" in group:
            group["lr"] = torch.full_like(group["lr"], RATE) if isinstance(group["lr"], torch.Tensor) else RATE
    for _ in range(STEPS):
        for probe in probes.values():
            probe.grad = torch.randn_like(probe)
        if apart:
            _step_apart(trial, list(probes.values()))
        else:
            type(trial).step(trial)
    return [probe.detach() for probe in probes.values()]


def _step_apart(trial: torch.optim.Optimizer, probes: Sequence[nn.Parameter]) -> None:
    """Step one parameter after another, with no state but its own, as `Offloaded` does."""
    states = dict(trial.state)
    for probe in probes:
        trial.state.clear()
        if probe in states:
            trial.state[probe] = states[probe]
        with only(trial, probe):
            type(trial).step(trial)
        states.update(trial.state)
    trial.state.update(states)


def _probe(param: torch.Tensor) -> nn.Parameter:
    dtype = torch.complex128 if param.is_complex() else torch.float64
    shape = [min(SIDE, size) for size in param.shape]
    return nn.Parameter(torch.randn(shape, dtype=dtype).to(param.device))


def _copy(optimizer: torch.optim.Optimizer, probes: dict[torch.Tensor, nn.Parameter]) -> torch.optim.Optimizer:
    """Return a copy of `optimizer` without states and hooks, wherever it knows parameters with `probes`."""
    known: dict[int, Any] = {id(optimizer.state): defaultdict(dict)}
    rest = nn.Parameter(torch.zeros(1))
    for group in optimizer.param_groups:
        known |= {id(param): probes.get(param, rest) for param in group["params"]}
    trial = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if name != "step":  # a scheduler puts its own before the class's, which steps the original
            trial.__dict__[name] = OrderedDict() if name in HOOKS else _copied(value, known)
    return trial


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """Return a deep copy of an attribute, or itself if it has none, like a lock."""
    try:
        return copy.deepcopy(value, known)
    except TypeError:
        return value
