"""Refuse, at its first step, an optimizer that cannot step pieces of parameters."""

import weakref
from collections.abc import Iterable
from inspect import signature
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from hpcdl.sharding.elementwise import require_elementwise
from hpcdl.sharding.groups import options_of

_pieces: WeakIdKeyDictionary = WeakIdKeyDictionary()  # of the parameters of fully sharded models
_options: WeakIdKeyDictionary = WeakIdKeyDictionary()  # the first piece of a group to the options it was stepped with
_cuts: WeakIdKeyDictionary = WeakIdKeyDictionary()  # of the parameters of split layers
_wholes: WeakIdKeyDictionary = WeakIdKeyDictionary()  # those parameters
_seen: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # optimizers, and how many parameters they had


def know(piece: torch.Tensor, whole: torch.Tensor) -> None:
    """Inspect optimizers that step `piece` from now on, and refuse those that step `whole`."""
    _pieces[piece] = _wholes[whole] = True


def know_cut(part: torch.Tensor) -> None:
    """Refuse optimizers that step `part`, a rank's part of a split layer's weight, differently from the whole."""
    _cuts[part] = True


def stepped_with(pieces: Iterable[torch.Tensor]) -> list[Any]:
    """Return the options of the groups that stepped `pieces` since the last call."""
    return [_options.pop(piece) for piece in pieces if piece in _options]


def _before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for group in optimizer.param_groups if _pieces else ():
        if group["params"] and group["params"][0] in _pieces:
            _options[group["params"][0]] = options_of([group])
    if not (_pieces or _cuts) or _seen.get(optimizer) == len(params):
        return
    if any(param in _cuts for param in params):
        _require_parts(optimizer, params)
    if any(param in _wholes for param in params):
        raise RuntimeError(
            "the optimizer has parameters from before FullyShardedDataParallel cut them, and would step nothing; make "
            "it from model.parameters() after wrapping"
        )
    if any(param in _pieces for param in params):
        _require_pieces(optimizer, params)
    _seen[optimizer] = len(params)


def _require_pieces(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> None:
    """Raise if the optimizer would step pieces differently from the whole, or steps parameters that no wrapper has."""
    if any(not group["params"] for group in optimizer.param_groups):
        raise RuntimeError(
            "the optimizer has a group without parameters: the pieces of FullyShardedDataParallel have one axis, so "
            "p.dim() > 1 selects none; choose groups by name, or by shape before wrapping"
        )
    if other := [param for param in params if param not in _pieces and param.requires_grad]:
        raise RuntimeError(
            f"the optimizer has a parameter of shape {tuple(other[0].shape)} that no wrapper has, so its gradient "
            "comes from this rank only; wrap one module that contains it, too"
        )
    name = type(optimizer).__name__
    if hasattr(optimizer, "step_with"):
        raise ValueError(
            f"{name} needs norms over all ranks, which pieces do not have; use it in hpcdl.sharding.ShardedOptimizer"
        )
    _probe(optimizer, params)


def _require_parts(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> None:
    """Raise ValueError if the optimizer would step parts of split layers differently from the whole."""
    name = type(optimizer).__name__
    try:
        if hasattr(optimizer, "step_with"):
            raise ValueError(name)
        _probe(optimizer, params)
    except ValueError:
        raise ValueError(
            f"{name} needs a parameter's elements together, and each rank has a part of those of a split layer; take "
            "one that works elementwise, such as SGD, Adam or AdamW"
        ) from None


def _probe(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> None:
    """Raise ValueError unless an optimizer of this kind and with these options works elementwise."""
    known = signature(type(optimizer)).parameters
    options = {key: value for key, value in optimizer.defaults.items() if key in known}
    require_elementwise(lambda probes: type(optimizer)(probes, **options), [{}], params[0].device)


register_optimizer_step_pre_hook(_before)
