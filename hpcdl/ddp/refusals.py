"""Refuse, when wrapping, modules that data parallelism would train wrongly."""

from collections.abc import Iterable

import torch.distributed as dist
from torch import nn
from torch.nn.parameter import is_lazy


def require_supported(module: nn.Module) -> None:
    """Raise ValueError for a layer inside `module` that no data-parallel wrapper can train, and name it."""
    for name, layer in module.named_modules():
        require_not_wrapped(name, layer)
        if getattr(layer, "sparse", False) is True:
            raise ValueError(
                f"{_where(name, layer)} has sparse=True, and sparse gradients cannot be averaged over ranks; use "
                "sparse=False"
            )
        if getattr(layer, "max_norm", None) is not None:
            raise ValueError(
                f"{_where(name, layer)} has max_norm={layer.max_norm!r}: each rank's forward would change other rows "
                "of the weight; use max_norm=None and limit the rows after optimizer.step()"
            )
        if isinstance(layer, nn.SyncBatchNorm) and layer.training and not _syncs(layer):
            raise ValueError(
                f"{_where(name, layer)} takes its means over torch.distributed on GPUs, which is not set up here; use "
                "GroupNorm, LayerNorm, or eval()"
            )
        require_values(name, layer)
        for key, value in (*layer._parameters.items(), *layer._buffers.items()):
            if value is not None and value.is_sparse:
                raise ValueError(
                    f"{_where(name, layer)} has a sparse {key}, which cannot be sent; make it dense with to_dense()"
                )


def require_not_wrapped(name: str, layer: nn.Module) -> None:
    """Raise ValueError for a layer that is a data-parallel wrapper, or whose weights are in a wrapper that frees
    them."""
    if hasattr(layer, "synchronize") and hasattr(layer, "no_sync"):
        inside = f"the module's {name!r}" if name else "the module"
        raise ValueError(
            f"{inside} is a {type(layer).__name__} already, and its gradients would be summed twice; wrap the whole "
            "model once"
        )
    if getattr(layer._parameters, "in_pieces", False):
        raise ValueError(
            f"{_where(name, layer)} has parameters in a FullyShardedDataParallel already; wrap one module that has all "
            "that they share, or build the module again"
        )


class NoneAdded:
    """The parameters that a wrapper knows; parameters added later are refused when they are found.

    The search runs in the first forward pass, and in the 2nd, 4th, 8th, ...: usually the change comes before training.
    """

    def __init__(self, module: nn.Module, known: Iterable[nn.Parameter]):
        self.module, self._known = module, {id(param) for param in known}
        self._passes = 0

    def require(self) -> None:
        """Raise RuntimeError, at the start of a forward pass, for a trainable parameter that was added after
        wrapping."""
        self._passes += 1
        if self._passes & (self._passes - 1):
            return
        for name, param in self.module.named_parameters():
            if param.requires_grad and id(param) not in self._known:
                raise RuntimeError(
                    f"{name} is another parameter than when the module was wrapped, and its gradient would be of this "
                    "rank alone; change the module first, then wrap it and make the optimizer"
                )


def require_values(name: str, layer: nn.Module) -> None:
    """Raise ValueError for a layer with parameters or buffers that are lazy or on the meta device."""
    for key, value in (*layer._parameters.items(), *layer._buffers.items()):
        if value is not None and is_lazy(value):
            raise ValueError(
                f"{_where(name, layer)} is lazy: {key} has no shape yet; call the module once before you wrap it"
            )
        if value is not None and value.is_meta:
            raise ValueError(
                f"{_where(name, layer)} has {key} on the meta device, without values; call to_empty() and fill it"
            )


def _syncs(layer: nn.SyncBatchNorm) -> bool:
    """Return whether torch can compute the layer's means over ranks."""
    tensors = [*layer.parameters(), *layer.buffers()]
    return dist.is_available() and dist.is_initialized() and not any(x.device.type == "cpu" for x in tensors)


def _where(name: str, layer: nn.Module) -> str:
    return f"{name or 'the module'} ({type(layer).__name__})"
