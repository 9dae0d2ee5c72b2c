"""Gradients of one rank, or parts of gradients: uses that would be silently wrong raise errors.

A parameter's `.grad` is of one of these classes until the ranks' mean is there. Autograd adds to it, and most functions
work; those that `refuses` matches raise RuntimeError.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import torch

CHANGES = r"(?<!_)_$|^__i(?!nit|ter)|^__setitem__$|^__set__$"  # names of functions that write
KEPT = (torch.Tensor.data.__get__, torch.Tensor.detach)  # type: ignore[attr-defined]  # the same numbers under another name
ABOUT = r"^__get__$|^dim$|^size$|^numel$|^is_|^stride$|^element_size$|^untyped_storage$"  # independent of the numbers


class Guarded(torch.Tensor):
    """A gradient that refuses some uses."""

    refuses: ClassVar[str] = ""
    sentence: ClassVar[str] = ""

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        targets = args[0] if args and isinstance(args[0], list | tuple) else args[:1]
        if any(isinstance(x, cls) for x in targets) and re.search(cls.refuses, func.__name__):
            raise RuntimeError(cls.sentence)
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        return found.as_subclass(cls) if func in KEPT else found


class UnderWay(Guarded):
    """A gradient of data parallelism before `synchronize()`, which may be on its way to other ranks."""

    refuses = CHANGES
    sentence = (
        "a gradient was changed between backward and synchronize(), on its way to the other ranks; call "
        "synchronize() first, then clip or scale"
    )


class OfThisRank(Guarded):
    """A gradient of ZeRO-1 before the step: from this rank's samples only."""

    refuses = r"norm|clamp|clip"
    sentence = (
        "this gradient comes from this rank's samples only: its norm is not the mean gradient's, and clipping it does "
        "not clip the mean; call optimizer.clip(max_norm) of the ShardedOptimizer"
    )


class Part(Guarded):
    """A gradient of ZeRO-3 after `synchronize()`: this rank's part of it."""

    refuses = "norm"
    sentence = (
        "this is only the part of the gradient that this rank keeps, so its norm is not the gradient's; call "
        "model.clip(max_norm) of the FullyShardedDataParallel, which returns the norm over all ranks"
    )


class Gone(Guarded):
    """What ZeRO-2 leaves instead of a gradient that it has sent in backward: only its shape."""

    refuses = rf"^(?!{ABOUT})"
    sentence = (
        "this gradient was sent to the other ranks during backward, and cannot be read or changed any more; call "
        "optimizer.clip(max_norm) of the ShardedOptimizer, divide the loss instead of gradients, or use stage=1"
    )
