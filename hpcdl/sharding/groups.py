"""Parameter groups as in torch's optimizers: parameters, (name, parameter) pairs, or dicts of either."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from hpcdl.comm import Communicator
from hpcdl.ddp.agreement import require_same
from hpcdl.ddp.alike import agree, digest, votes


def as_groups(params: Iterable, known: Sequence[Sequence[torch.Tensor]] = ()) -> tuple[list[dict[str, Any]], bool]:
    """Return the groups, as dicts with a list of unique "params", and whether they were given as groups.

    Raises ValueError for a parameter in two groups, including the `known` ones, and TypeError for anything that is not
    a parameter.
    """
    if isinstance(params, torch.Tensor):
        raise TypeError("params is a tensor; give a list of parameters, such as model.parameters()")
    given = list(params)
    grouped = bool(given) and isinstance(given[0], dict)
    groups = [dict(group) for group in given] if grouped else [{"params": given}]
    seen = {id(param) for group in known for param in group}
    for number, group in enumerate(groups):
        group["params"] = _plain(group["params"])
        for param in group["params"]:
            if id(param) in seen:
                raise ValueError(
                    f"a parameter of shape {tuple(param.shape)} in group {len(known) + number} is in another one, "
                    "too; put each parameter into one group"
                )
        seen |= {id(param) for param in group["params"]}
    return groups, grouped


def as_list(groups: Iterable[Iterable[torch.Tensor]]) -> list[torch.Tensor]:
    """Return the parameters of all groups, in torch's order."""
    return [param for group in groups for param in group]


def numbered(options: Iterable[dict[str, Any]], groups: Iterable[Sequence[torch.Tensor]]) -> list[dict[str, Any]]:
    """Return the groups of a state: `options`, and numbers instead of parameters."""
    found, first = [], 0
    for given, group in zip(options, groups, strict=True):
        found.append({**given, "params": list(range(first, first + len(group)))})
        first += len(group)
    return found


def option_votes(groups: Iterable[dict[str, Any]]) -> list[float]:
    """Return a rank's part of the sum that `require_same_options` reads."""
    return votes(digest(options_of(groups)))


def options_of(groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the options of `groups` without the parameters, tensors as numbers."""
    return [{key: _number(value) for key, value in group.items() if key != "params"} for group in groups]


def _number(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def require_same_options(sums: Sequence[float]) -> None:
    """Raise ValueError on every rank if the ranks' groups have different options, such as learning rates."""
    if not agree(sums):
        raise ValueError(
            "ranks have other options in param_groups, such as another learning rate, and each would step its part of "
            "the weights by its own; make a scheduler depend on the mean loss of all ranks, not on one rank's"
        )


def trainable(params: Iterable[Any], comm: Communicator) -> list[nn.Parameter]:
    """Return the trainable parameters; raise ValueError if there are none, or if other ranks' differ."""
    found = [param for param in params if param.requires_grad]
    if not found:
        raise ValueError(
            "no parameter requires a gradient, so there is nothing to step; give those of a model to train"
        )
    for param in found:
        if is_lazy(param):
            raise ValueError("a parameter is lazy and has no shape yet; call the model once before ShardedOptimizer")
        if param.is_meta:
            raise ValueError(
                f"a parameter of shape {tuple(param.shape)} is on the meta device, without values; call to_empty() on "
                "the model and fill it"
            )
        comm.check_tensor("ShardedOptimizer", "a parameter", param.detach().contiguous())
    lines = [f"{tuple(param.shape)} {str(param.dtype).removeprefix('torch.')}" for param in found]
    require_same("other parameters", lines, comm, "build the same model on every rank, its weights may differ")
    return found


def _plain(params: Any) -> list[torch.Tensor]:
    """Return a group's unique parameters, without their names."""
    listed = [params] if isinstance(params, torch.Tensor) else list(params)
    plain = [each[1] if isinstance(each, tuple) else each for each in listed]
    for param in plain:
        if not isinstance(param, torch.Tensor):
            raise TypeError(f"params has a {type(param).__name__}; give parameters, such as model.parameters()")
    return list(dict.fromkeys(plain))
