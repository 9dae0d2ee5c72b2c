"""Compare two values, exactly or up to rounding. Only exact types are compared, never by their own `==`."""

from typing import Any

import torch


def same(a: Any, b: Any) -> bool:
    """Return whether plain values are exactly equal: types, shapes, dtypes, bits (NaN equals NaN); foreign
    objects never are."""
    if type(a) is not type(b):
        return False
    if type(a) is torch.Tensor:
        return a.dtype == b.dtype and a.shape == b.shape and bool(agree(a, b, 0.0, 0.0).all())
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is dict:
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if type(a) is torch.Generator:
        return torch.equal(a.get_state(), b.get_state())
    if type(a) is float:
        return a == b or (a != a and b != b)
    return type(a) in PLAIN and a == b


PLAIN = (type(None), bool, int, complex, str, bytes, set, frozenset, range, torch.dtype)


def is_number(value: Any) -> bool:
    """Whether `value` is a plain number, of a size that a float can have."""
    return type(value) is float or (type(value) is int and value.bit_length() <= 1000)


def alike(got: Any, value: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Whether `got` is a tensor with the shape of `value` and, up to rounding, its numbers, in any dtype."""
    return type(got) is torch.Tensor and got.shape == value.shape and bool(agree(got, value, rtol, atol).all())


def agree(a: torch.Tensor, b: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    """Compare elementwise: within tolerance, or equal infinities, or both NaN. Integers and bools agree when equal."""
    if not (b.is_floating_point() or b.is_complex()) and not (a.is_floating_point() or a.is_complex()):
        return a == b
    a, b = wide(a), wide(b)
    return (a == b) | ((a - b).abs() <= rtol * b.abs() + atol) & b.isfinite() | (a.isnan() & b.isnan())


def wide(t: torch.Tensor) -> torch.Tensor:
    return t.detach().to(torch.complex128 if t.is_complex() else torch.float64)


def first_difference(a: Any, b: Any, path: str):
    """Return the first difference of two values, as (path, a there, b there)."""
    if type(a) is type(b) and type(a) in (list, tuple) and len(a) == len(b):
        i = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if not same(x, y))
        return first_difference(a[i], b[i], f"{path}[{i}]")
    if type(a) is dict and type(b) is dict and a.keys() == b.keys():
        key = next(key for key in a if not same(a[key], b[key]))
        return first_difference(a[key], b[key], f"{path}[{key!r}]")
    return path, a, b
