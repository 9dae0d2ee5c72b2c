"""Shares of weights outside their split layers: sums over elements are right in a loss, other uses raise errors.

A layer multiplies by its share itself. Elsewhere, such as in a penalty of a loss, functions of single elements give
`ElementsOfShare`, and sums of them `SumOfShares`, whose gradient is right and whose value is of this rank. A norm, the
largest element or a product with a share would silently differ from those of the whole weight.
"""

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from hpcdl.ddp.guarded import ABOUT, PLACES, REDUCES, flat, matches, steps_now
from hpcdl.sharding.pieces import refuse_in_transforms, untraced

OUTSIDE = (
    "this weight is only this rank's share of a split layer's weight, so norms, extremes, products and indices of it "
    "are not those of the whole; in a loss take sums over elements, such as weight.pow(2).sum(), or join it first: "
    "hpcdl.parallel.tensor.join(weight, comm, length, dim) on every rank"
)
SUMMED = (
    "this number sums only this rank's shares of split weights; read the loss, or take functions of it, before you add "
    "a penalty on weights, or penalize whole weights: hpcdl.parallel.tensor.join(weight, comm, length, dim)"
)

IN_TRANSFORMS = (
    "vmap, grad and jvp of torch.func do not reach other ranks, and a split layer has a share of its weight and sends "
    "messages; call the layer outside them, join() its weight first, or keep it dense"
)

# Names of functions of single elements, without underscores at their ends.
ELEMENTWISE = (
    r"^(r?(add|sub|mul|div|truediv|pow)|subtract|multiply|divide|true_divide|floor_divide|remainder|fmod|float_power"
    r"|abs(olute)?|neg(ative)?|pos(itive)?|square|r?sqrt|exp[2m1]*|log(1p|2|10|it|sigmoid)?|reciprocal|a?(sin|cos|tan)h?"
    r"|sinc|sigmoid|relu6?|[sc]?elu|gelu|silu|mish|soft(plus|sign)|hard(tanh|sigmoid|swish)|leaky_relu|threshold"
    r"|(soft|hard|tanh)shrink|cla?i?m?p(_min|_max)?|si?gn|signbit|erfc?|round|floor|ceil|trunc|fix|frac|maximum|minimum"
    r"|fmax|fmin|where|masked_fill|nan_to_num|lerp|addcmul|addcdiv|hypot|atan2|xlogy|copysign|heaviside"
    r"|conj(_physical)?|[gl][te]|eq|ne|greater(_equal)?|less(_equal)?|not_equal|is(nan|inf|finite)|(logical|bitwise)_"
    r"(and|or|xor|not)|and|or|xor|invert)$"
)
SAME = (  # the same elements in the same order
    r"^(detach|clone|contiguous|view|view_as|reshape|reshape_as|flatten|unflatten|ravel|unsqueeze|squeeze|cat|concat"
    r"|concatenate|stack|hstack|to|type|type_as|float|double|half|bfloat16|cpu|cuda|resolve_(conj|neg)|pin_memory"
    r"|requires_grad)$"
)
SUMS = r"^(sum|v?dot)$"
OF_ELEMENTS = r"^(mse_loss|l1_loss|smooth_l1_loss|huber_loss)$"  # sums with reduction="sum"
TOGETHER = rf"(?!.*normal$)({REDUCES})|{PLACES}"  # in place
MAKES = r"_like$|^new_|^as_subclass$"
APART = (  # independent of the numbers, or of both tensors' shares
    rf"{ABOUT}|^n?dim(ension)?$|^nelement$|^has_|^get_device$|^storage|^register_|^retain_grad$|^result_type$|^__dir__$"
    r"|^(equal|allclose|isclose|is_same_size)$|^__hash__$|^_(is|has)_|^__setstate__$"
)
LINEAR = (
    r"^(r?(add|sub)|subtract|neg(ative)?|pos(itive)?|sum|mean|r?(mul|multiply)|div|divide|true_divide|truediv|getitem"
    rf"|unbind|select|expand)$|{SAME}"
)
SCALES = r"mul|div"
READS = r"^__format__$|^is_nonzero$|^equal$|close$"
QUOTIENTS = r"^r(div|truediv)$"


class ShareOfWeight(nn.Parameter):
    """A rank's share of a split layer's weight."""

    def __new__(cls, data: torch.Tensor, requires_grad: bool = True) -> "ShareOfWeight":
        with torch._C.DisableTorchFunctionSubclass():
            plain = data.detach().as_subclass(torch.Tensor)
            return torch.Tensor._make_subclass(cls, plain, requires_grad)

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _called(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict) -> "ShareOfWeight":
        return memo.setdefault(id(self), ShareOfWeight(local_share(self).clone(), self.requires_grad))

    def __reduce_ex__(self, protocol: Any) -> Any:  # files have plain parameters
        return nn.Parameter(local_share(self).detach(), self.requires_grad).__reduce_ex__(protocol)


class ElementsOfShare(torch.Tensor):
    """Functions of single elements of shares, such as their squares."""

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _called(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        return memo.setdefault(id(self), local_share(self).detach().clone().as_subclass(ElementsOfShare))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return local_share(self).__reduce_ex__(protocol)


class SumOfShares(torch.Tensor):
    """A sum over elements of shares, or a loss with such a sum: its gradient is right, its value is of this rank."""

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _called(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return "a sum over this rank's shares of split weights"


Shares = (ShareOfWeight, ElementsOfShare)
PLAIN: dict[type, Any] = {ShareOfWeight: nn.Parameter, ElementsOfShare: torch.Tensor, SumOfShares: torch.Tensor}
KINDS = tuple(PLAIN)


def become_share(param: torch.Tensor) -> None:
    """Guard the parameter of a split layer outside its layer."""
    if type(param) is nn.Parameter:
        param.__class__ = ShareOfWeight  # as torch does with lazy parameters: hooks and references stay


def elements(gradient: torch.Tensor) -> torch.Tensor:
    """Guard a share's gradient that is part of a loss, by create_graph=True, like functions of single elements."""
    dense = gradient.layout is torch.strided
    return _guarded(gradient.view_as(gradient), ElementsOfShare) if dense else gradient


def local_share(weight: torch.Tensor) -> torch.Tensor:
    """Return this rank's share of a split layer's weight as a plain tensor, for a layer of your own that splits work.

    Its gradient reaches the weight. Other tensors are returned as they are.
    """
    if not isinstance(weight, Shares):
        return weight
    with torch._C.DisableTorchFunctionSubclass():
        return weight.as_subclass(torch.Tensor)


def within(function: Callable[..., torch.Tensor], *args: Any, **options: Any) -> torch.Tensor:
    """Call `function` of a layer's own share."""
    if any(isinstance(x, SumOfShares) for x in args):
        raise RuntimeError(SUMMED)
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **options)


def _called(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Return `func(*args, **kwargs)` with the guard that its result needs; RuntimeError if it would be wrong."""
    name = func.__name__
    if name in ("backward", "grad"):
        return _differentiated(func, args, kwargs)
    with torch._C.DisableTorchFunctionSubclass():
        if steps_now() and not torch.is_grad_enabled():  # optimizers have been tried elementwise
            return func(*args, **kwargs)
        if name in ("__get__", "__set__", "__delete__"):
            return _property(func, args, kwargs)
        if any(isinstance(x, SumOfShares) for x in flat((*args, *kwargs.values()))):
            return _of_sums(func, name, args, kwargs)
        try:
            return _of_shares(func, name, args, kwargs)
        except (RuntimeError, IndexError) as error:
            if str(error) != OUTSIDE and re.search(r"dimension|shape|size|numel", str(error)):
                raise RuntimeError(OUTSIDE) from error
            raise


def _differentiated(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Compute gradients by torch; users' hooks run in it, and gradients stay guarded."""
    kinds = {id(x): (x, type(x)) for x in flat((*args, *kwargs.values())) if isinstance(x, KINDS)}
    for x, kind in kinds.values():
        x.__class__ = PLAIN[kind]
    try:
        return func(*args, **kwargs)
    finally:
        for x, kind in kinds.values():
            x.__class__ = kind


refuse_in_transforms(IN_TRANSFORMS, *KINDS)
# torch.compile leaves these to Python.
untraced(_called, _differentiated, *(vars(kind)["__torch_function__"].__func__ for kind in KINDS))
getattr(torch_optimizer, "_foreach_supported_types", []).append(ShareOfWeight)  # else optimizers would take a loop


def _property(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Get or set a property, such as `grad`; `T` would hide which element is which."""
    name = getattr(getattr(func, "__self__", None), "__name__", "")
    if name in ("T", "mT", "H", "mH"):
        raise RuntimeError(SUMMED if isinstance(args[0], SumOfShares) else OUTSIDE)
    found = func(*args, **kwargs)
    if name not in ("data", "real", "imag") or func.__name__ != "__get__":
        return found
    return _guarded(found, SumOfShares if isinstance(args[0], SumOfShares) else ElementsOfShare)


def _of_sums(func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
    """Call a function of sums over shares, which must be linear in them."""
    if matches(rf"{APART}|{MAKES}", name) and not matches(READS, name):
        return func(*args, **kwargs)
    base, given = name.strip("_"), [x for x in flat((*args, *kwargs.values())) if isinstance(x, torch.Tensor)]
    right = matches(LINEAR, base) and not matches(QUOTIENTS, base) and not any(isinstance(x, Shares) for x in given)
    if matches(SCALES, base):  # by numbers alone, which are the same on every rank
        others = [x for x in given if not isinstance(x, SumOfShares)]
        right &= len(others) == len(given) - 1 and not any(x.requires_grad for x in others)
        right &= not matches(r"div", base) or isinstance(args[0], SumOfShares)
    if not right:
        raise RuntimeError(SUMMED)
    return _guarded(func(*args, **kwargs), SumOfShares)


def _of_shares(func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
    """Call a function of shares, which must be one of single elements, or sum them up for a loss."""
    base = name.removeprefix("_foreach_").strip("_")
    draws_again = name == "any" and _is_called_in("torch.nn.init")  # until all elements are in bounds
    if matches(rf"{APART}|{MAKES}", name) or draws_again:
        return func(*args, **kwargs)
    if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
        return _in_place(func, name, args, kwargs)
    given = [x for x in flat((*args, *kwargs.values())) if isinstance(x, torch.Tensor)]
    shares = _shares_in(given)
    cut = base == "getitem" and (_takes_all(args) or _is_called_in("torch.nn.utils.convert_parameters"))
    if matches(SAME, base) and not _shares_in(args[:1]):
        return func(*args, **kwargs)  # another tensor, made like a share
    if matches(SAME, base) or cut:
        return _guarded(func(*args, **kwargs), ElementsOfShare)
    if matches(SUMS, base) or (matches(OF_ELEMENTS, base) and kwargs.get("reduction") == "sum"):
        found = func(*args, **kwargs)
        if _alone(given, shares[0].shape) and found.requires_grad:
            return _guarded(found, SumOfShares)
    elif matches(ELEMENTWISE, base) and name.startswith("_foreach_"):
        return _like(func(*args, **kwargs), args[0])
    elif matches(ELEMENTWISE, base) and _alone(given, shares[0].shape):
        found = func(*args, **kwargs)
        if getattr(found, "shape", None) == shares[0].shape:
            return _guarded(found, ElementsOfShare)
    raise RuntimeError(OUTSIDE)


def _shares_in(args: Iterable) -> list[torch.Tensor]:
    return [x for x in flat(args) if isinstance(x, Shares)]


def _like(found: list[torch.Tensor], given: list[torch.Tensor]) -> list[Any]:
    """Return the results of a `_foreach_` function, elements of shares where it was given shares."""
    pairs = zip(found, given, strict=True)
    return [_guarded(x, ElementsOfShare) if isinstance(y, Shares) else x for x, y in pairs]


def _in_place(func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
    """Change elements of a share, each by itself."""
    base = name.removeprefix("_foreach_").strip("_")
    if not (_takes_all(args) if name == "__setitem__" else not matches(TOGETHER, base)):
        raise RuntimeError(OUTSIDE)
    return args[0].requires_grad_(False) if name == "detach_" else _changed(func(*args, **kwargs))


def _is_called_in(module: str) -> bool:
    """Return whether a function of `module` calls torch here."""
    frame = sys._getframe()
    while frame.f_globals is globals() and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals.get("__name__") == module


def _alone(given: list[torch.Tensor], shape: torch.Size) -> bool:
    """Return whether only tensors of a share's `shape` get gradients: another's would be of this rank's elements."""
    others = [x for x in given if not isinstance(x, Shares) and x.shape != shape]
    return not torch.is_grad_enabled() or not any(x.requires_grad for x in others)


def _takes_all(args: tuple) -> bool:
    """Return whether an index is a mask, or takes everything."""
    index = args[1]
    return (
        getattr(index, "dtype", None) is torch.bool
        or index is None
        or index is ...
        or (isinstance(index, slice) and index == slice(None))
    )


def _changed(found: Any) -> Any:
    """Return what a function has changed in place, guarded if it has a gradient of shares now."""
    return _guarded(found, ElementsOfShare) if isinstance(found, torch.Tensor) and found.requires_grad else found


def _guarded(found: Any, kind: type[torch.Tensor]) -> Any:
    """Return the tensors that a function has made, or changed in place, as `kind`, by every name that they have."""
    if isinstance(found, list | tuple):
        return type(found)([_guarded(x, kind) for x in found])
    if type(found) is torch.Tensor:
        found.__class__ = kind
    return found
