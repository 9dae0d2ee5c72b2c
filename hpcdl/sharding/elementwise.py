"""Test whether an optimizer works elementwise, by running it on whole parameters and on parts of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from hpcdl.sharding.offload import Offloaded

SHAPE, PARTS, STEPS = (6, 4), (slice(0, 11), slice(11, 24)), 4
RATE = 0.125  # a schedule may begin at 0, which would change nothing


def require_elementwise(make: Callable[[list], Any], groups: list[dict[str, Any]], device: torch.device) -> None:
    """Raise ValueError unless the optimizer from `make` updates parts of tensors exactly as it updates whole tensors.

    `make` is called three times, with small parameters in groups that have the options of `groups` (one group without
    options: a plain list), and each optimizer takes some steps. An optimizer with `step_with`, such as LARS and LAMB,
    passes: it steps parts with norms of the whole. Random generators are restored afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights = [torch.randn(SHAPE, dtype=torch.float64).to(device) for _ in range(max(2, len(groups)))]
        gradients = [[torch.randn(SHAPE, dtype=torch.float64).to(device) for _ in weights] for _ in range(STEPS)]
        probes = [nn.Parameter(weight.clone()) for weight in weights]
        made = make(_arranged(probes, groups))
        require_steps_only(made, probes)
        name = type(stepped(made)).__name__
        if hasattr(stepped(made), "step_with"):
            if isinstance(made, Offloaded):
                raise ValueError(
                    f"{name} needs norms over all ranks, and Offloaded steps one parameter at a time; take {name} "
                    "without Offloaded, or an optimizer that works elementwise, such as AdamW"
                )
            return
        try:
            whole = _train(made, probes, gradients, lambda x: x)
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


def require_apart(make: Callable[[list], Any], device: torch.device) -> None:
    """Raise ValueError unless the optimizer from `make` steps each parameter as if it were the only one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # Muon takes matrices only, others any shape.
        weights, *gradients = torch.randn(1 + STEPS, 2, *SHAPE, dtype=torch.float64).to(device)

        def trained(numbers: slice) -> list[torch.Tensor]:
            probes = [nn.Parameter(weight.clone()) for weight in weights[numbers]]
            return _train(make(probes), probes, [each[numbers] for each in gradients], lambda x: x)

        try:
            together, alone = trained(slice(2)), [*trained(slice(1)), *trained(slice(1, 2))]
            alike = all(_close(x, y) for x, y in zip(together, alone, strict=True))
        except Exception:
            alike = False
    if not alike:
        raise ValueError("the optimizer steps a parameter by what others have, or its step failed")


def require_rowwise(make: Callable[[list], Any], device: torch.device) -> None:
    """Raise ValueError unless the optimizer from `make` updates rows as it updates wholes, from sparse gradients."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weight, *gradients = torch.randn(1 + STEPS, *SHAPE, dtype=torch.float64).to(device)
        for i, gradient in enumerate(gradients):
            gradient[i] = 0  # no gradient for some rows

        def trained(rows: slice) -> torch.Tensor:
            probes = [nn.Parameter(weight[rows].clone())]
            return _train(make(probes), probes, [[x] for x in gradients], lambda x: x[rows].to_sparse(1))[0]

        try:
            alike = _close(torch.cat([trained(slice(0, 2)), trained(slice(2, None))]), trained(slice(None)))
        except Exception:
            alike = False
    if not alike:
        raise ValueError("the optimizer steps rows by what other rows have, or its step failed")


def stepped(made: Any) -> Any:
    """Return the optimizer that updates weights: itself, or the one that `Offloaded` wraps."""
    return made.optimizer if isinstance(made, Offloaded) else made


def _arranged(params: list[nn.Parameter], groups: list[dict[str, Any]]) -> list:
    """Arrange `params` in the form that `make` expects: a list, or a group for each of `groups`."""
    if groups == [{}]:
        return params
    return [{**group, "params": [param]} for group, param in zip(groups, params, strict=False)]


def _trained_parts(make, weights, gradients, groups) -> Iterator[list[torch.Tensor]]:
    for where in PARTS:

        def cut(x: torch.Tensor, where: slice = where) -> torch.Tensor:
            return x.flatten()[where]

        probes = [nn.Parameter(cut(weight).clone()) for weight in weights]
        made = make(_arranged(probes, groups))
        yield _train(made, probes, gradients, cut)


def require_steps_only(made: Any, given: Sequence[torch.Tensor]) -> None:
    """Raise ValueError if `made` steps parameters that `make` was not given, such as the model's own."""
    if any(all(param is not each for each in given) for param in _params(made)):
        raise ValueError(
            f"make built an optimizer ({type(stepped(made)).__name__}) of parameters that it was not given; it gets "
            "this rank's shards, and for groups of the model's parameters: ShardedOptimizer([{'params': ...}, ...], "
            "comm, make)"
        )


def _params(made: Any) -> list[torch.Tensor]:
    optimizer = stepped(made)
    if not callable(getattr(optimizer, "step", None)):
        raise ValueError(
            f"make returned {type(made).__name__}; it returns an optimizer, such as torch.optim.Adam(shards)"
        )
    groups = getattr(optimizer, "param_groups", None)
    return optimizer.params if groups is None else [param for group in groups for param in group["params"]]


def _train(made: Any, probes, gradients, cut: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    """Return the `probes` that `made` steps, after all gradients, split."""
    optimizer, params = stepped(made), _params(made)
    for group in getattr(optimizer, "param_groups", ()):
        if "lr" in group:
            group["lr"] = torch.full_like(group["lr"], RATE) if isinstance(group["lr"], torch.Tensor) else RATE
    numbers = [i for i, probe in enumerate(probes) if any(probe is param for param in params)]
    for each in gradients:
        for i in numbers:
            probes[i].grad = cut(each[i]).clone()
        optimizer.step()
    return [probes[i].detach() for i in numbers]


def _close(x: torch.Tensor, y: torch.Tensor) -> bool:
    return torch.allclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=True)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
