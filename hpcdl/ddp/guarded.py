"""Gradients of one rank, or parts of gradients: uses that would be silently wrong raise errors.

A parameter's `.grad` is of one of these classes until the ranks' mean is there. Autograd adds to it, and most functions
work; those that `refuses` matches raise RuntimeError. What functions compute from it element by element is of the same
class, so that `(grad ** 2).sum()` is found like `grad.norm()`.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, ClassVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

CHANGES = r"(?<!_)_$|^__i(?!nit|ter)|^__setitem__$|^__set__$"  # names of functions that write
KEPT = (torch.Tensor.data.__get__, torch.Tensor.detach)  # type: ignore[attr-defined]  # the same numbers under another name
ABOUT = (  # independent of the numbers
    r"^__get__$|^dim$|^size$|^numel$|^is_|^stride$|^element_size$|^untyped_storage$|^data_ptr$|^__len__$|^__repr__$"
    r"|^__format__$|^as_subclass$|^__(reduce|deepcopy)"
)
REDUCES = (  # names of functions whose result depends on several elements
    r"norm|sum|mean|median|prod|mode|^(nan)?quantile$|^(arg|a|cum|_foreach_)?(max|min)(max)?$|^std|^var|^(v|tensor)?dot$"
    r"|^inner$|matmul|^(b|add)?m[mv]_?$|sort|topk|kthvalue|softmax|logcumsumexp|hist|unique|nonzero|^any$|^all$|non_finite"
    r"|^cov$|^corrcoef$|dist$|^cosine|_loss$|einsum|^numpy$|^tolist$|^__array__$"
)
PLACES = r"^__[gs]etitem__$|^(select|narrow|index_|take|gather|scatter|unbind|flip|roll)"  # by other elements in a part
RESHAPES = (  # names of functions with the same elements, or some of them
    r"^(cat|concat|stack|[vhd]stack|view|view_as|reshape|flatten|ravel|(un)?squeeze|expand|repeat|float|double|half|bfloat16"
    r"|to|cpu|cuda|type|_?values|coalesce|to_dense|contiguous|t|transpose|permute|select|narrow|__getitem__|__get__)$"
)
LINEAR = (  # names of functions that commute with the mean over ranks; they may change or replace elements
    r"^_*(foreach_)?[ir]?(add|sub|mul|div|truediv|neg|lerp|addcmul|addcdiv|zero|copy|fill|where|masked_fill)_*$|^(clone"
    r"|detach_?|positive|negative|subtract|multiply|divide|requires_grad_|register_hook|retain_grad|__[gs]etitem__|__set__"
    r"|unbind|split|chunk|index_select)$|.*_like$|^new_"
)
DECOMPOSES = r"^linalg_|svd|^qr$|eig|fft|cholesky|inverse|^trace$|^tri[ul]$|^diag|^outer$|^kron$|^diff$"


_local = threading.local()  # of the thread that steps an optimizer: `steps`


def note_step(steps: bool, *_: Any) -> None:
    """Note that an optimizer's step begins or ends: copies of gradients that it keeps are not guarded."""
    _local.steps = steps


def steps_now() -> bool:
    """Return whether this thread is inside an optimizer's step."""
    return getattr(_local, "steps", False)


register_optimizer_step_pre_hook(partial(note_step, True))
register_optimizer_step_post_hook(partial(note_step, False))


class Guarded(torch.Tensor):
    """A gradient that refuses some uses."""

    refuses: ClassVar[str] = ""
    pairs: ClassVar[str] = "^$"  # refused if two of its arguments are guarded
    forgets: ClassVar[str] = rf"{CHANGES}|^isclose$"  # functions with unguarded results
    prevails: ClassVar[bool] = False  # decides where arguments of several classes meet
    sentence: ClassVar[str] = ""

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.partition(".")[0]  # without the overload, where a mode dispatches it
        for kind in types:
            if kind is not cls and getattr(kind, "prevails", False):
                return kind.__torch_function__(func, types, args, kwargs)
        if matches(cls.refuses, name) and guards(cls, args, kwargs, name):
            raise RuntimeError(cls.why(name))
        if matches(cls.pairs, name) and guards(cls, args, kwargs, name) > 1:
            raise RuntimeError(cls.why(name))
        if name == "detach_":  # torch refuses it for views, which these are
            return args[0].requires_grad_(False)
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        if func in KEPT:
            return as_kind(found, cls)
        if name == "as_subclass" or matches(cls.forgets, name) or (name == "clone" and steps_now()):
            return found
        return _like(found, cls, args, matches(RESHAPES, name))

    @classmethod
    def why(cls, name: str) -> str:
        """Return the sentence that refuses function `name`."""
        return cls.sentence

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        return as_kind(numbers_of(self).clone(), type(self))

    def __format__(self, spec: str) -> str:
        if spec:  # of a number
            raise RuntimeError(self.why("item"))
        return repr(self)


class AbsentGradient(Guarded):
    """A gradient whose numbers are not there, or not yet: printed it is a sentence."""

    refuses = rf"^(?!{ABOUT})"

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        raise RuntimeError(self.why("item"))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"<{self.why('item')}>"


class UnderWay(AbsentGradient):
    """A gradient of data parallelism before `synchronize()`, which may be on its way to other ranks."""

    sentence = (
        "a gradient was changed between backward and synchronize(), on its way to the other ranks; call "
        "synchronize() first, then clip or scale"
    )

    @classmethod
    def why(cls, name: str) -> str:
        if matches(rf"{CHANGES}|norm", name):  # clipping measures first
            return cls.sentence
        return (
            "a gradient was read between backward and synchronize(), on its way to the other ranks; call synchronize() "
            "after backward, then read gradients or step the optimizer"
        )


class OfThisRank(Guarded):
    """A gradient of ZeRO-1 before the step: from this rank's samples only. Linear changes are right."""

    refuses = rf"^(?!{ABOUT}|{RESHAPES}|{LINEAR})"
    pairs = r"mul|div"
    sentence = (
        "this gradient comes from this rank's samples only: its norm, its signs and the like are not the mean "
        "gradient's; call optimizer.clip(max_norm) of the ShardedOptimizer, which returns the norm, too, and read or "
        "change the mean gradient in a hook: param.register_hook(torch.sign)"
    )

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        changes = matches(CHANGES, func.__name__) and func.__name__ != "__set__"
        if changes and any(isinstance(x, torch.nn.Parameter) for x in flat(args[:1])):
            raise RuntimeError(
                "this gradient comes from this rank's samples only, and would make this rank's weights differ from the "
                "others'; call step() of the ShardedOptimizer, or synchronize() of the wrapper, first"
            )
        return super().__torch_function__(func, types, args, kwargs)


class OfThisRanksPass(OfThisRank):
    """A result of torch.autograd.grad under data parallelism: from this rank's samples only."""

    sentence = (
        "this gradient comes from this rank's samples only: its norm is not the mean gradient's; put it into the "
        "parameter's .grad and call synchronize(), then measure or change that"
    )


class GradientPart(Guarded):
    """A gradient of ZeRO-3 after `synchronize()`: this rank's part of it."""

    refuses = rf"{REDUCES}|{PLACES}|{DECOMPOSES}"
    forgets = rf"{CHANGES}|_like$|^new_|^isclose$"
    sentence = (
        "this is only the part of the gradient that this rank keeps, so its norm is not the gradient's, nor its "
        "maximum or histogram; call model.clip(max_norm) of the FullyShardedDataParallel, which returns the norm over "
        "all ranks, or read whole gradients in hooks that you register on parameters before wrapping"
    )

    @classmethod
    def why(cls, name: str) -> str:
        if matches("non_finite", name):
            return (
                "this is only the part of the gradient that this rank keeps, so an overflow elsewhere would not be "
                "found; use hpcdl.training.mixed_precision.LossScaler(comm), with which all ranks skip a step together"
            )
        if matches(PLACES, name):
            return (
                "this is only the part of the gradient that this rank keeps, as a vector, so an index finds another "
                "element than in the parameter; choose elements by a mask of the piece's own shape"
            )
        return cls.sentence


class GradientShare(GradientPart):
    """A gradient of ZeRO-1 or -2 after `reduce()`: this rank's part of it."""

    sentence = (
        "this is only the part of the gradient that this rank keeps, so its norm is not the gradient's, nor its "
        "maximum or histogram; call optimizer.clip(max_norm) of the ShardedOptimizer, which returns the norm over all "
        "ranks, or read whole gradients in hooks of the parameters"
    )


class InStep(AbsentGradient):
    """The gradient of a part of a parameter in ZeRO-1 or -2 between backward and `reduce()`: only its shape."""

    sentence = (
        "the gradient of this part of a parameter is there only inside step(), and could not be read or changed; call "
        "optimizer.clip(max_norm) of the ShardedOptimizer, pass the model's parameters to step of hpcdl.training's "
        "LossScaler, and read or change whole gradients in hooks of the model's parameters"
    )


class Gone(AbsentGradient):
    """What ZeRO-2 leaves instead of a gradient that it has sent in backward: only its shape."""

    sentence = (
        "this gradient was sent to the other ranks during backward, and can no longer be read or changed; call "
        "optimizer.clip(max_norm) of the ShardedOptimizer, divide the loss instead of gradients, or read and change "
        "the mean gradient in a hook: param.register_hook(torch.sign)"
    )


class NotYet(AbsentGradient):
    """The gradient of a piece of ZeRO-3 between backward and `synchronize()`: only its shape."""

    sentence = (
        "the gradient of this piece is not there before synchronize(), and could not be read or changed; call "
        "model.synchronize() after backward, then model.clip(max_norm) or optimizer.step()"
    )


def of_this_rank(kind: type[Guarded], grad: torch.Tensor) -> torch.Tensor:
    """Return what backward has computed, guarded: torch.autograd.grad returns it, before the ranks' mean is there."""
    return grad if torch.is_grad_enabled() or grad.layout is not torch.strided else grad.as_subclass(kind)


def unguarded(grad: torch.Tensor) -> torch.Tensor:
    """Return a gradient's numbers for code that combines all ranks' itself; before they are final they stay guarded."""
    return grad.as_subclass(torch.Tensor) if isinstance(grad, OfThisRank | GradientPart) else grad


def _like(found: Any, cls: type[Guarded], args: tuple, reshaped: bool) -> Any:
    """Return `found`, guarded if it was computed element by element from the first argument, or has its elements."""
    first = args[0] if args else None
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(first, list | tuple):
            if isinstance(found, list | tuple):
                pairs = zip(found, first, strict=False)
                return type(found)([_like(x, cls, (y,), False) if isinstance(x, torch.Tensor) else x for x, y in pairs])
            guarded = reshaped and any(isinstance(x, cls) for x in first)
        else:
            guarded = isinstance(first, cls) and (reshaped or getattr(found, "shape", None) == first.shape)
        return as_kind(found, cls) if guarded and type(found) is torch.Tensor else found


def as_kind(x: torch.Tensor, kind: type[torch.Tensor]) -> torch.Tensor:
    """Return `x` as `kind`; a sparse tensor itself changes its class, since it has no other tensor's memory."""
    if x.layout is torch.strided:
        return x.as_subclass(kind)
    x.__class__ = kind
    return x


def numbers_of(x: torch.Tensor) -> torch.Tensor:
    """Return the numbers of `x`, unguarded; a tensor of no other class is returned as it is."""
    if type(x) is torch.Tensor:
        return x
    if x.layout is torch.strided:
        return x.as_subclass(torch.Tensor)
    with torch._C.DisableTorchFunctionSubclass():
        return x.detach()


@cache
def matches(pattern: str, name: str) -> bool:
    """Return whether a function's name is one of `pattern`."""
    return bool(re.search(pattern, name))


def guards(cls: type, args: Any, kwargs: Any, name: str) -> int:
    """Return how many of the arguments are guarded; an index that is a mask, or takes all, is no index."""
    if name in ("__getitem__", "__setitem__"):
        index = args[1]
        if getattr(index, "dtype", None) is torch.bool or index is None or index is ... or index == slice(None):
            return 0
    return sum(isinstance(x, cls) for x in flat((*args, *(kwargs or {}).values())))


def flat(args: Iterable) -> Iterator[Any]:
    """Yield the arguments, and the items of those that are lists."""
    for x in args:
        if isinstance(x, list | tuple):
            yield from x
        else:
            yield x
