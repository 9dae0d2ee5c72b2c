"""What the split layers take over from the dense layer that they are made from, or refuse."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.utils.weak import WeakTensorKeyDictionary

from hpcdl.comm import Communicator
from hpcdl.ddp import apart
from hpcdl.parallel.tensor.weights import become_share, elements
from hpcdl.sharding.pieces import untraced
from hpcdl.sharding.steps import know_apart, know_dense

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class SplitLayer(nn.Module):
    """A layer with a share of its weights on each rank of `comm`."""

    comm: Communicator

    def __init_subclass__(cls) -> None:
        untraced(cls.forward)  # torch.compile leaves its messages to Python

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a split layer cannot be copied or pickled: its communicator belongs to this process; save its "
            "state_dict(), or split the dense layer once more"
        )


class MadeParameter:
    """A parameter made from a dense one: its module, its ranks, and the axis of the cut."""

    def __init__(self, module: nn.Module, comm: Communicator, dim: str, parameter: nn.Parameter):
        self.dim, self.parameter = dim, weakref.ref(parameter)
        self.module, self.comm = weakref.ref(module), weakref.ref(comm)


_made = WeakTensorKeyDictionary()  # a dense parameter to the `MadeParameter`s


def require_plain(dense: nn.Module, kind: type[nn.Module], forward: Callable | None = None) -> None:
    """Raise ValueError unless `dense` computes what torch's `kind` does, from parameters of its own.

    A split layer takes over options and parameters, and neither hooks nor another `forward`; `forward` is one of a
    subclass that is known.
    """
    name = type(dense).__name__
    if not isinstance(dense, kind):
        raise ValueError(f"the dense layer is a {name}; give an nn.{kind.__name__}")
    if "forward" in vars(dense) or type(dense).forward not in (kind.forward, forward):
        raise ValueError(
            f"{name} has a forward of its own, which the split layer would not call; give an nn.{kind.__name__}"
        )
    for path, layer in dense.named_modules():
        where = f"{name}.{path}" if path else name
        for key, param in layer.named_parameters(recurse=False):
            _require_plain_parameter(f"{where}.{key}", param)
        if found := [hook for hook in HOOKS if getattr(layer, hook)]:
            raise ValueError(
                f"{where} has {found[0].strip('_').replace('_', ' ')}, which the split layer would not call; remove "
                "them (weight_norm and pruning: make them permanent), or register them on the split layer"
            )
        if hasattr(layer, "parametrizations"):
            raise ValueError(
                f"{where} computes its {next(iter(layer.parametrizations))} from other parameters; call "
                "torch.nn.utils.parametrize.remove_parametrizations first"
            )


def _require_plain_parameter(name: str, param: nn.Parameter) -> None:
    if isinstance(param, UninitializedParameter):
        raise ValueError(f"{name} has no shape yet; run the lazy layer on a batch first")
    if param.is_meta:
        raise ValueError(f"{name} is on the meta device, without values; call to_empty() and fill it")
    if any(getattr(param, hook, None) for hook in PARAMETER_HOOKS):
        raise ValueError(f"{name} has hooks on its gradient, which the split layer would not call; remove them")


def as_parameter(x: torch.Tensor) -> nn.Parameter:
    """`x` itself where it is a parameter, else a new one."""
    return x if isinstance(x, nn.Parameter) else nn.Parameter(x)


def part_of(layer: nn.Module, name: str, comm: Communicator) -> torch.Tensor:
    """Return `layer.name`, this rank's share of a weight, for its forward pass; elsewhere it is guarded.

    Raises ValueError for a weight that is computed from others, since a norm there would be that of the share.
    """
    param = getattr(layer, name)
    if comm.size == 1 or param is None:
        return param
    if name not in layer._parameters:
        raise ValueError(
            f"the {name} of {type(layer).__name__} is computed from a share of another parameter; remove the "
            "parametrization or the pruning, or keep the layer dense"
        )
    _guard(param, comm)
    return param


def _guard(param: torch.Tensor, comm: Communicator) -> None:
    """Guard a share of a weight outside its layer, and its gradients."""
    become_share(param)
    if param.is_leaf and param.requires_grad and not apart.is_known(param, apart.OfSplitLayer):
        know_apart(param, comm, apart.OfSplitLayer)
        apart.listen(param, in_loss=elements)


def parameter(
    module: nn.Module,
    name: str,
    comm: Communicator,
    cut: Callable[[torch.Tensor], torch.Tensor] = torch.clone,
    dim: str = "nothing",
) -> nn.Parameter | None:
    """`module.name` cut by `cut`, along `dim`, such as "dimension 0": frozen if it is frozen, None if it is None.

    Where another module has the same parameter (a tied head), and its split layer lives, the two share this one, too.
    Raises ValueError where that one was cut along something else.
    """
    whole = getattr(module, name)
    if whole is None:
        return None
    known: list[MadeParameter] = _made.setdefault(whole, [])
    known[:] = [made for made in known if made.parameter() is not None and made.module() is not None]
    for made in reversed(known):
        here = made.parameter()
        if here is not None and made.comm() is comm and made.module() is not module:
            if made.dim != dim:
                raise ValueError(
                    f"the {name} of {type(module).__name__} is tied to that of {type(made.module()).__name__}, "
                    f"which was cut along {made.dim}, and this one would be along {dim}; cut both alike, or untie them"
                )
            known.append(MadeParameter(module, comm, dim, here))
            return here
    cut_out = nn.Parameter(cut(whole.detach()), requires_grad=whole.requires_grad)
    known.append(MadeParameter(module, comm, dim, cut_out))
    know_dense(whole)
    if comm.size > 1 and dim != "nothing":
        _guard(cut_out, comm)  # before users' hooks
    return cut_out
