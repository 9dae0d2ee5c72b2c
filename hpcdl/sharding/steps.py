"""Refuse, at its first step, an optimizer that cannot step pieces of parameters, or some of a network's."""

import weakref
from collections.abc import Iterable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from hpcdl.comm import Communicator
from hpcdl.ddp import apart
from hpcdl.ddp.guarded import Guarded, note_step
from hpcdl.sharding.elementwise import require_apart, require_elementwise, require_rowwise
from hpcdl.sharding.groups import options_of

_pieces: WeakIdKeyDictionary = WeakIdKeyDictionary()  # of the parameters of fully sharded models
_options: WeakIdKeyDictionary = WeakIdKeyDictionary()  # the first piece of a group to the options it was stepped with
_wholes: WeakIdKeyDictionary = WeakIdKeyDictionary()  # those parameters
_dense: WeakIdKeyDictionary = WeakIdKeyDictionary()  # parameters that layers were split from
_seen: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # optimizers, and how many parameters they had


def know(piece: torch.Tensor, whole: torch.Tensor) -> None:
    """Inspect optimizers that step `piece` from now on, and refuse those that step `whole`."""
    _pieces[piece] = _wholes[whole] = True


def know_apart(param: torch.Tensor, comm: Communicator, kind: type[Guarded], counts: bool = True) -> None:
    """`hpcdl.ddp.apart.know`, and refuse optimizers that would step `param` differently from one process."""
    apart.know(param, comm, kind, counts)


def know_dense(param: torch.Tensor) -> None:
    """Refuse optimizers that step only `param`, the whole that a split layer was made from."""
    _dense[param] = True


def stepped_with(pieces: Iterable[torch.Tensor]) -> list[Any]:
    """Return the options of the groups that stepped `pieces` since the last call."""
    return [_options.pop(piece) for piece in pieces if piece in _options]


def _before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if not (_pieces or _wholes or _dense or apart.is_used()):
        return
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for group in optimizer.param_groups if _pieces else ():
        if group["params"] and group["params"][0] in _pieces:
            _options[group["params"][0]] = options_of([group])
    stage = [param for param in params if apart.is_known(param, apart.OfStage)]
    for param in stage:
        param.grad = apart.plain(param.grad)  # an optimizer may take the norm of each
    shares = [param for param in params if apart.is_known(param, apart.OfSplitLayer)]
    if _seen.get(optimizer) == (len(params), len(stage), len(shares)):
        return
    _require_present(params)
    if shares:
        _require_parts(optimizer, params, shares)
    if stage:
        _require_apart(optimizer, params)
    if any(param in _pieces for param in params):
        _require_pieces(optimizer, params)
    note_step(True)  # optimizers that were tried have ended theirs
    _seen[optimizer] = len(params), len(stage), len(shares)


def _require_present(params: list[torch.Tensor]) -> None:
    """Raise RuntimeError if there are parameters that a wrapper or a split layer has replaced by its own."""
    if any(param in _dense and param.requires_grad and param.grad is None for param in params):
        raise RuntimeError(
            "the optimizer has parameters of a dense layer from before it was split, and would not step its shares; "
            "make it from the parameters of the split layers"
        )
    if any(param in _wholes for param in params):
        raise RuntimeError(
            "the optimizer has parameters from before FullyShardedDataParallel cut them, and would step nothing; make "
            "it from model.parameters() after wrapping"
        )


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


def _require_parts(optimizer: torch.optim.Optimizer, params: list[torch.Tensor], shares: list[torch.Tensor]) -> None:
    """Raise ValueError if the optimizer would step `shares`, parts of split layers, differently from the whole."""
    name = type(optimizer).__name__
    sparse = [share for share in shares if share.grad is not None and share.grad.is_sparse]  # embeddings, cut by rows
    if sparse:
        try:
            require_rowwise(partial(type(optimizer), **_options_of(optimizer)), params[0].device)
        except ValueError:
            raise ValueError(
                f"{name} does not step rows of an embedding by their sparse gradients alone, and each rank has some of "
                "the rows; take SGD, Adagrad or SparseAdam, or sparse=False"
            ) from None
    if len(sparse) == len(shares):
        return
    try:
        if hasattr(optimizer, "step_with"):
            raise ValueError(name)
        _probe(optimizer, params)
    except ValueError:
        raise ValueError(
            f"{name} needs a parameter's elements together, and each rank has a part of those of a split layer; take "
            "one that works elementwise, such as SGD, Adam or AdamW"
        ) from None


def _require_apart(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> None:
    """Raise ValueError if the optimizer would step a parameter by what others have, some of them on other ranks."""
    name = type(optimizer).__name__
    try:
        require_apart(partial(type(optimizer), **_options_of(optimizer)), params[0].device)
    except ValueError:
        raise ValueError(
            f"{name} steps a parameter by what other parameters have, and other ranks have other layers; take an "
            "optimizer that steps each parameter by itself, such as SGD, Adam or AdamW"
        ) from None


def _probe(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> None:
    """Raise ValueError unless an optimizer of this kind and with these options works elementwise."""
    require_elementwise(partial(type(optimizer), **_options_of(optimizer)), [{}], params[0].device)


def _options_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the options with which another optimizer of this kind can be made, to try it."""
    known = signature(type(optimizer))
    options = {key: value for key, value in optimizer.defaults.items() if key in known.parameters}
    try:
        known.bind([], **options)
    except TypeError as error:
        raise TypeError(
            f"{type(optimizer).__name__} cannot be tried on small parameters, since its __init__ needs more than its "
            f"defaults ({error}); give its arguments default values, or the names of its groups' options"
        ) from None
    return options


def _after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups if apart.is_used() else ():
        for param in group["params"]:
            if apart.is_known(param, apart.OfStage):
                param.grad = apart.guarded(param, param.grad)


register_optimizer_step_pre_hook(_before)
register_optimizer_step_post_hook(_after)
