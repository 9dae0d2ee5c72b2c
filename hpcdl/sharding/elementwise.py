"""Whether an optimizer works elementwise, found by what it does: on whole parameters, and on parts of them."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from hpcdl.sharding.offload import Offloaded

SHAPE, PARTS, STEPS = (6, 4), (slice(0, 11), slice(11, 24)), 4
RATE = 0.125  # a schedule may begin at 0, which would show nothing


def require_elementwise(make: Callable[[list], Any], groups: list[dict[str, Any]], device: torch.device) -> None:
    """Raise ValueError unless the optimizer that `make` builds updates parts as it updates what they are parts of.

    `make` is called three times, with small parameters in groups that have the options of `groups` (one group without
    options: a plain list), and each optimizer takes some steps. One with `step_with` passes, such as LARS and LAMB: it
    steps parts with norms of the whole. Random numbers are as they were afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights = [torch.randn(SHAPE, dtype=torch.float64).to(device) for _ in range(max(2, len(groups)))]
        gradients = [[torch.randn(SHAPE, dtype=torch.float64).to(device) for _ in weights] for _ in range(STEPS)]
        made = make(_arranged([nn.Parameter(weight.clone()) for weight in weights], groups))
        name = type(stepped(made)).__name__
        if hasattr(stepped(made), "step_with"):
            if isinstance(made, Offloaded):
                raise ValueError(
                    f"{name} needs norms over all ranks, and Offloaded steps one parameter at a time; take {name} "
                    "without Offloaded, or an optimizer that works elementwise, such as AdamW"
                )
            return
        try:
            whole = _train(made, weights, gradients, lambda x: x)
        except Exception as error:
            raise ValueError(
                f"{name} needs a parameter's elements together, a closure or sparse gradients: its step failed "
                f"({_first_line(error)}); take one that works elementwise, such as SGD, Adam or AdamW"
            ) from None
        try:
            parts = [torch.cat(part) for part in zip(*_trained_parts(make, weights, gradients, groups), strict=True)]
            alike = all(_close(x, y.flatten()) for x, y in zip(parts, whole, strict=True))
        except Exception:
            alike = False
    if not alike:
        raise ValueError(
            f"{name} needs a parameter's elements together or its shape, and here each rank has a flat part of them; "
            "take one that works elementwise, such as SGD, Adam or AdamW, or hpcdl.training's LARS or LAMB, and choose "
            "weight decay by shape in groups of whole parameters: ShardedOptimizer([{'params': ...}, ...], comm, make)"
        )


def stepped(made: Any) -> Any:
    """The optimizer that updates weights: itself, or the one that `Offloaded` wraps."""
    return made.optimizer if isinstance(made, Offloaded) else made


def _arranged(params: list[nn.Parameter], groups: list[dict[str, Any]]) -> list:
    """`params` as `make` gets the shards: a list, or a group for each of `groups`."""
    if groups == [{}]:
        return params
    return [{**group, "params": [param]} for group, param in zip(groups, params, strict=False)]


def _trained_parts(make, weights, gradients, groups) -> Iterator[list[torch.Tensor]]:
    for where in PARTS:

        def cut(x: torch.Tensor, where: slice = where) -> torch.Tensor:
            return x.flatten()[where]

        made = make(_arranged([nn.Parameter(cut(weight).clone()) for weight in weights], groups))
        yield _train(made, weights, gradients, cut)


def _train(made: Any, weights, gradients, cut: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    """The parameters that `made` steps, after all gradients, cut; in their order."""
    optimizer = stepped(made)
    groups = getattr(optimizer, "param_groups", None)
    params = optimizer.params if groups is None else [param for group in groups for param in group["params"]]
    for group in groups or ():
        if "lr" in group:
            group["lr"] = torch.full_like(group["lr"], RATE) if isinstance(group["lr"], torch.Tensor) else RATE
    order = [_which(param, weights, cut) for param in params]
    for each in gradients:
        for param, i in zip(params, order, strict=True):
            param.grad = cut(each[i]).clone()
        optimizer.step()
    return [param.detach() for _, param in sorted(zip(order, params, strict=True), key=lambda pair: pair[0])]


def _which(param: torch.Tensor, weights: list[torch.Tensor], cut: Callable) -> int:
    return next(i for i, weight in enumerate(weights) if torch.equal(param, cut(weight)))


def _close(x: torch.Tensor, y: torch.Tensor) -> bool:
    return torch.allclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=True)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
