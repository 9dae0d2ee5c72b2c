"""Pieces of weights, and what a loss sums of them: uses that would be silently wrong raise errors."""

import contextlib
import functools
import re
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._functorch import eager_transforms, vmap

from hpcdl.ddp.guarded import ABOUT, CHANGES, KEPT, PLACES, REDUCES, RESHAPES, Guarded, flat, guards, matches

SUMS = r"norm$|^(nan)?(sum|mean|prod)$|^std|^var|dot$|matmul|^(b|add)?mm$|softmax|logsumexp|dist$|_loss$|einsum"
IN_TRANSFORMS = (
    "torch.func and forward-mode derivatives of a FullyShardedDataParallel do not reach weights, which are in pieces; "
    "call vmap, grad and jvp inside the module's forward, or use DistributedDataParallel"
)
RANDOM = r"(normal|uniform|random|bernoulli|exponential|cauchy|geometric)_$|dropout"


class PieceOfWeight(Guarded):
    """A parameter of ZeRO-3 at rest: this rank's part of it. What a loss sums of it is `PieceOfLoss`."""

    refuses = rf"{REDUCES}|{PLACES}|{RANDOM}"
    forgets = rf"{CHANGES}|_like$|^new_"
    sentence = (
        "this parameter is only the flat piece that this rank keeps, so its norm, shape and order are not those of the "
        "whole; call state_dict() of the FullyShardedDataParallel on every rank and read its tensors, or change the "
        "module before it is wrapped"
    )

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if name in ("__get__", "__set__", "__delete__") and func not in KEPT:
            try:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **(kwargs or {}))
            except RuntimeError as error:
                if "assign a gradient of size" in str(error):
                    raise RuntimeError(cls.sentence) from error
                raise
        if name == "grad":
            raise RuntimeError(
                "the weights are in pieces on the ranks, which torch.autograd.grad does not reach; call backward() on "
                "the loss, or use DistributedDataParallel or hpcdl.sharding.ShardedOptimizer"
            )
        try:
            with torch._C.DisableTorchFunctionSubclass():
                if matches(SUMS, name) and guards(cls, args, kwargs, name):
                    found = func(*args, **(kwargs or {})) if _trained(args, kwargs) else None
                    if isinstance(found, torch.Tensor) and found.requires_grad:
                        return found.as_subclass(PieceOfLoss)
                elif not matches(rf"^_foreach_|{RESHAPES}|{ABOUT}", name) and _mismatched(cls, args, kwargs):
                    raise RuntimeError(cls.sentence)
            return super().__torch_function__(func, types, args, kwargs)
        except (RuntimeError, IndexError) as error:
            if re.search(r"dimension|shape|size|empty|numel", str(error).lower()):
                raise RuntimeError(cls.sentence) from error
            raise

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            numbers = self.data.clone()
        return nn.Parameter(numbers.as_subclass(PieceOfWeight), self.requires_grad)


class PieceOfLoss(Guarded):
    """A sum over pieces of weights, or a loss with such a sum: its gradient is right, and its value is of this rank."""

    refuses = (
        r"^(item|tolist|numpy|detach|cpu|__(float|int|bool|index|format|array|lt|gt|le|ge|eq|ne)__|[lg][te]|eq|ne|isnan"
        r"|isfinite)$"
    )
    prevails = True
    sentence = (
        "this number sums only the pieces of weights that this rank keeps; read the loss before you add a penalty on "
        "weights, and measure weights by the tensors of state_dict(), which every rank calls"
    )

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if name == "backward":  # users' hooks run in it
            return func(args[0].as_subclass(torch.Tensor), *args[1:], **(kwargs or {}))
        read = matches(cls.refuses, name) or func in KEPT or (matches(CHANGES, name) and not isinstance(args[0], cls))
        if read and guards(cls, args, kwargs, name):
            raise RuntimeError(cls.sentence)
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
            plain = type(found) is not torch.Tensor or matches(rf"{CHANGES}|_like$|^new_|^as_subclass$|^__get__$", name)
            return found if plain else found.as_subclass(cls)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return "a sum over the pieces of weights that this rank keeps"


def untraced(*functions: Any) -> None:
    """Let Python run these functions, and what they call, in a module that torch.compile has compiled."""
    for function in functions:
        function._torchdynamo_disable = True
        with contextlib.suppress(AttributeError):
            frames = torch._C._dynamo.eval_frame
            skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
            frames.set_code_exec_strategy(function.__code__, skip)


# torch.compile would trace these functions, and call them in each other.
untraced(*(vars(each)["__torch_function__"].__func__ for each in (Guarded, PieceOfWeight, PieceOfLoss)))

# With another type than these, torch's optimizers would by default take a loop.
getattr(sys.modules["torch.optim.optimizer"], "_foreach_supported_types", []).append(PieceOfWeight)


def refuse_in_transforms(sentence: str, *kinds: type) -> None:
    """Raise RuntimeError where torch.func takes tensors of `kinds`, whose guards its own tensors would not have."""

    def refusing(wrap: Callable) -> Callable:
        @functools.wraps(wrap)
        def wrapped(x: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(x, kinds):
                raise RuntimeError(sentence)
            return wrap(x, *args, **kwargs)

        return wrapped

    for module, name in ((eager_transforms, "_wrap_tensor_for_grad"), (vmap, "_add_batch_dim")):
        if hasattr(module, name):
            setattr(module, name, refusing(getattr(module, name)))


refuse_in_transforms(IN_TRANSFORMS, PieceOfWeight, PieceOfLoss)


def _trained(args: tuple, kwargs: Any) -> bool:
    """Return whether a gradient is to be computed for one of the arguments."""
    tensors = (x for x in flat((*args, *(kwargs or {}).values())) if isinstance(x, torch.Tensor))
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _mismatched(cls: type, args: tuple, kwargs: Any) -> bool:
    """Return whether an argument has another shape than a piece: it is of whole weights."""
    given = (*args, *(kwargs or {}).values())
    shapes = {(isinstance(x, cls), x.shape) for x in given if isinstance(x, torch.Tensor) and x.dim()}
    pieces = {shape for piece, shape in shapes if piece}
    return bool(pieces) and len({shape for _, shape in shapes}) > 1
