"""What passes between the parts of a pipeline: a tensor, a tuple of tensors, or a dict of them."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, signature
from typing import Any, NamedTuple

import torch
from torch import nn

Value = Any  # a tensor, a tuple or list of tensors, or a dict of them by name


class RowSpec(NamedTuple):
    """A tensor between two parts: the shape of one row, and its dtype (`run_stage`'s if None).

    With `whole` there is one tensor of this shape for each microbatch, whatever its rows.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None
    whole: bool = False

    def empty(self, rows: int, dtype: torch.dtype, device: str) -> torch.Tensor:
        """Return a tensor for `rows` rows."""
        shape = self.shape if self.whole else (rows, *self.shape)
        return torch.empty(shape, dtype=self.dtype or dtype, device=device)


class Boundary(NamedTuple):
    """What passes at a boundary: specs of the tensors, with their names if it is a dict, `one` if it is a tensor."""

    specs: tuple[RowSpec, ...]
    names: tuple[str, ...] = ()
    one: bool = False

    def arranged(self, tensors: Sequence[torch.Tensor]) -> Value:
        """`tensors`, in the order of `specs`, as the next part takes them."""
        if self.names:
            return dict(zip(self.names, tensors, strict=True))
        return tensors[0] if self.one else tuple(tensors)

    def differentiable(self, dtype: torch.dtype) -> tuple[RowSpec, ...]:
        """Those whose gradients come back."""
        return tuple(spec for spec in self.specs if is_differentiable(spec.dtype or dtype))

    def require(self, value: Value, part: int, rows: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """Return the tensors in what `part` returned, in the order of `specs`; ValueError if it is something else."""
        if self.names and not (isinstance(value, Mapping) and set(value) == set(self.names)):
            given = sorted(value) if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(f"part {part} returned {given}, and `between` has the names {sorted(self.names)} there")
        found = [value[name] for name in self.names] if self.names else tensors_of(value, f"part {part}")
        expected = [(spec.shape if spec.whole else (rows, *spec.shape), spec.dtype or dtype) for spec in self.specs]
        given = [(tuple(x.shape), x.dtype) for x in found]
        if given != expected:
            raise ValueError(
                f"part {part} returned {_list(given)} for a microbatch of {rows} rows, and `between` has "
                f"{_list(expected)} there; give the shape of one row, and `dtype`"
            )
        return found


def boundary(given: Any) -> Boundary:
    """Return a boundary from what `between` has for it: a shape, a RowSpec, or a tuple or dict of RowSpecs."""
    if isinstance(given, Mapping):
        return Boundary(tuple(map(_spec, given.values())), tuple(given))
    if isinstance(given, RowSpec) or all(isinstance(size, int) for size in given):
        return Boundary((_spec(given),), one=True)
    return Boundary(tuple(map(_spec, given)))


def is_one_boundary(between: Any) -> bool:
    """Return whether `between` is the same for all boundaries: a shape, a RowSpec or a dict."""
    return isinstance(between, (RowSpec, Mapping)) or (bool(between) and isinstance(between[0], int))


def is_differentiable(dtype: torch.dtype) -> bool:
    """Return whether tensors of this dtype have gradients."""
    return dtype.is_floating_point or dtype.is_complex


def tensors_of(value: Value, where: str) -> list[torch.Tensor]:
    """Return the tensors in `value`; TypeError if there is anything else in it."""
    found = list(value.values()) if isinstance(value, Mapping) else value
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    for x in found:
        if not isinstance(x, torch.Tensor):
            raise TypeError(
                f"{where} has a {type(x).__name__} where a pipeline passes tensors: a tensor, a tuple or a dict of them"
            )
    return found


def like(value: Value, tensors: Sequence[torch.Tensor]) -> Value:
    """`tensors` arranged as those in `value`."""
    if isinstance(value, Mapping):
        return dict(zip(value, tensors, strict=True))
    return tuple(tensors) if isinstance(value, (tuple, list)) else tensors[0]


def call(module: nn.Module, value: Value) -> Value:
    """Call a module with what passes."""
    args, kwargs = arguments(module, value)
    return module(*args, **kwargs)


def arguments(module: nn.Module, value: Value) -> tuple[tuple, dict]:
    """Return what passes as a module's arguments: `module(x)`, `module(*tuple)` or `module(**dict)`.

    If its forward takes one argument, that is the tuple or the dict, as in nn.Sequential, unless a dict has its name.
    """
    if isinstance(value, torch.Tensor):
        return (value,), {}
    names = _arguments(type(module))  # type: ignore[arg-type]
    if names is not None and len(names) == 1 and not (isinstance(value, Mapping) and names[0] in value):
        return (value,), {}
    return ((), dict(value)) if isinstance(value, Mapping) else (tuple(value), {})


@lru_cache
def _arguments(kind: Any) -> list[str] | None:
    """Return the names of what its forward takes; None if it takes any number."""
    params = list(signature(kind.forward).parameters.values())[1:]
    any_number = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return None if any(param.kind in any_number for param in params) else [param.name for param in params]


class SequentialPart(nn.Sequential):
    """Layers one after another, as in nn.Sequential, that may pass several tensors."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the last layer's output; the first layer gets the arguments."""
        value: Value = kwargs or (args[0] if len(args) == 1 else args)
        for layer in self:
            value = call(layer, value)
        return value


def rows_of(value: Value) -> int:
    """Return the rows of a microbatch: the length of its first tensor."""
    return len(tensors_of(value, "a microbatch")[0])


def _spec(given: Any) -> RowSpec:
    return given if isinstance(given, RowSpec) else RowSpec(tuple(given))


def _list(shapes: Sequence[tuple]) -> str:
    return ", ".join(f"{shape} {str(dtype).removeprefix('torch.')}" for shape, dtype in shapes) or "nothing"
