"""Gradients of one rank, or parts of gradients: uses that would be silently wrong raise errors.

A parameter's `.grad` is of one of these classes until the ranks' mean is there. Autograd adds to it, and most functions
work; those that `refuses` matches raise RuntimeError. What functions compute from it element by element is of the same
class, so that `(grad ** 2).sum()` is found like `grad.norm()`.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, ClassVar

import torch

CHANGES = r"(?<!_)_$|^__i(?!nit|ter)|^__setitem__$|^__set__$"  # names of functions that write
KEPT = (torch.Tensor.data.__get__, torch.Tensor.detach)  # type: ignore[attr-defined]  # the same numbers under another name
ABOUT = (  # independent of the numbers
    r"^__get__$|^dim$|^size$|^numel$|^is_|^stride$|^element_size$|^untyped_storage$|^data_ptr$|^__len__$|^__repr__$"
    r"|^__format__$|^as_subclass$"
)
REDUCES = (  # names of functions whose result depends on several elements
    r"norm|sum|mean|median|prod|mode|^(nan)?quantile$|^(arg|a|cum|_foreach_)?(max|min)(max)?$|^std|^var|^(v|tensor)?dot$"
    r"|^inner$|matmul|^(b|add)?m[mv]_?$|sort|topk|kthvalue|softmax|logcumsumexp|hist|unique|nonzero|^any$|^all$|non_finite"
    r"|^cov$|^corrcoef$"
)
PLACES = r"^__[gs]etitem__$|^(select|narrow|index_|take|gather|scatter)"  # an index means another element in a part
BENDS = (  # names of elementwise functions that are not linear
    r"clamp|clip|sign|^_?_?r?pow|square|sqrt|exp|log|tanh|sigmoid|relu|abs|round|floor|ceil|trunc|reciprocal|nan_to_num"
    r"|maximum|minimum|fmod|remainder|erf|threshold|shrink"
)


class Guarded(torch.Tensor):
    """A gradient that refuses some uses."""

    refuses: ClassVar[str] = ""
    pairs: ClassVar[str] = "^$"  # refused if two of its arguments are guarded
    forgets: ClassVar[str] = CHANGES  # functions with unguarded results
    sentence: ClassVar[str] = ""

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if _matches(cls.refuses, name) and _guards(cls, args, kwargs, name):
            raise RuntimeError(cls.why(name))
        if _matches(cls.pairs, name) and _guards(cls, args, kwargs, name) > 1:
            raise RuntimeError(cls.why(name))
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        if func in KEPT:
            return found.as_subclass(cls)
        plain = type(found) is not torch.Tensor or name == "as_subclass" or _matches(cls.forgets, name)
        if plain or not (args and isinstance(args[0], cls)):
            return found
        with torch._C.DisableTorchFunctionSubclass():
            return found.as_subclass(cls) if found.shape == args[0].shape else found

    @classmethod
    def why(cls, name: str) -> str:
        """Return the sentence that refuses function `name`."""
        return cls.sentence


class UnderWay(Guarded):
    """A gradient of data parallelism before `synchronize()`, which may be on its way to other ranks."""

    refuses = rf"^(?!{ABOUT})"
    sentence = (
        "a gradient was changed between backward and synchronize(), on its way to the other ranks; call "
        "synchronize() first, then clip or scale"
    )

    @classmethod
    def why(cls, name: str) -> str:
        if _matches(rf"{CHANGES}|norm", name):  # clipping measures first
            return cls.sentence
        return (
            "a gradient was read between backward and synchronize(), on its way to the other ranks; call synchronize() "
            "after backward, then read gradients or step the optimizer"
        )


class OfThisRank(Guarded):
    """A gradient of ZeRO-1 before the step: from this rank's samples only. Linear changes are right."""

    refuses = rf"{REDUCES}|{BENDS}"
    pairs = r"mul|div"
    sentence = (
        "this gradient comes from this rank's samples only: its norm is not the mean gradient's, and clipping it does "
        "not clip the mean; call optimizer.clip(max_norm) of the ShardedOptimizer"
    )


class Part(Guarded):
    """A gradient of ZeRO-3 after `synchronize()`: this rank's part of it."""

    refuses = rf"{REDUCES}|{PLACES}"
    forgets = rf"{CHANGES}|clone|_like$|^new_"  # optimizers keep copies
    sentence = (
        "this is only the part of the gradient that this rank keeps, so its norm is not the gradient's; call "
        "model.clip(max_norm) of the FullyShardedDataParallel, which returns the norm over all ranks"
    )

    @classmethod
    def why(cls, name: str) -> str:
        if _matches("non_finite", name):
            return (
                "this is only the part of the gradient that this rank keeps, so an overflow elsewhere would not be "
                "found; use hpcdl.training.mixed_precision.LossScaler(comm), with which all ranks skip a step together"
            )
        if _matches(PLACES, name):
            return (
                "this is only the part of the gradient that this rank keeps, as a vector, so an index finds another "
                "element than in the parameter; choose elements by a mask of the piece's own shape"
            )
        return cls.sentence


class Piece(Part):
    """A `Part` in a hook, which may copy it first."""

    forgets = rf"{CHANGES}|_like$|^new_"


class Share(Part):
    """A gradient of ZeRO-1 or -2 after `reduce()`: this rank's part of it."""

    sentence = (
        "this is only the part of the gradient that this rank keeps, so its norm is not the gradient's; call "
        "optimizer.clip(max_norm) of the ShardedOptimizer, which returns the norm over all ranks"
    )


class InStep(Guarded):
    """The gradient of a part of a parameter in ZeRO-1 or -2 between backward and `reduce()`: only its shape."""

    refuses = rf"^(?!{ABOUT})"
    sentence = (
        "the gradient of this part of a parameter is there only inside step(), and could not be read or changed; call "
        "optimizer.clip(max_norm) of the ShardedOptimizer, and scale losses with hpcdl.training's LossScaler"
    )


class Gone(Guarded):
    """What ZeRO-2 leaves instead of a gradient that it has sent in backward: only its shape."""

    refuses = rf"^(?!{ABOUT})"
    sentence = (
        "this gradient was sent to the other ranks during backward, and cannot be read or changed any more; call "
        "optimizer.clip(max_norm) of the ShardedOptimizer, divide the loss instead of gradients, or use stage=1"
    )


class NotYet(Guarded):
    """The gradient of a piece of ZeRO-3 between backward and `synchronize()`: only its shape."""

    refuses = rf"^(?!{ABOUT})"
    sentence = (
        "the gradient of this piece is not there before synchronize(), and could not be read or changed; call "
        "model.synchronize() after backward, then model.clip(max_norm) or optimizer.step()"
    )


def unguarded(grad: torch.Tensor) -> torch.Tensor:
    """Return a gradient's numbers for code that combines all ranks' itself; before they are final they stay guarded."""
    return grad.as_subclass(torch.Tensor) if isinstance(grad, OfThisRank | Part) else grad


@cache
def _matches(pattern: str, name: str) -> bool:
    return bool(re.search(pattern, name))


def _guards(cls: type, args: Any, kwargs: Any, name: str) -> int:
    """Return how many of the arguments are guarded; an index that is a mask, or takes all, is no index."""
    if name in ("__getitem__", "__setitem__"):
        index = args[1]
        if getattr(index, "dtype", None) is torch.bool or index is None or index is ... or index == slice(None):
            return 0
    return sum(isinstance(x, cls) for x in _flat((*args, *(kwargs or {}).values())))


def _flat(args: tuple) -> Iterator[Any]:
    for x in args:
        if isinstance(x, list | tuple):
            yield from x
        else:
            yield x
