"""Compare two values, exactly or up to rounding. Only exact types are compared, never by their own `==`."""

from collections import Counter
from collections.abc import Hashable, Iterable
from fractions import Fraction
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


MOST_BITS = 1000  # of an int that checks compute with: a float has as much
PLAIN = (type(None), bool, int, complex, str, bytes, set, frozenset, range, torch.dtype)


def is_number(value: Any) -> bool:
    """Whether `value` is a plain number, of a size that a float can have."""
    return type(value) is float or (type(value) is int and value.bit_length() <= MOST_BITS)


def is_exact(value: Any) -> bool:
    """Whether `value` is an int or a fraction, of so few bits that sums of products of such numbers stay short."""
    if type(value) is int:
        return value.bit_length() <= MOST_BITS
    return type(value) is Fraction and max(value.numerator.bit_length(), value.denominator.bit_length()) <= MOST_BITS


def duplicates(items: Iterable[Hashable]) -> list:
    """Return, sorted, the items that occur more than once; in linear time, as answers may have many."""
    return sorted(item for item, count in Counter(items).items() if count > 1)


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


def first_difference(a: Any, b: Any, path: str = "") -> tuple[str, Any, Any]:
    """Return the first difference of two values, as (the index that leads there, a there, b there)."""
    if type(a) is type(b) and type(a) in (list, tuple) and len(a) == len(b):
        i = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if not same(x, y))
        return first_difference(a[i], b[i], f"{path}[{i}]")
    if type(a) is dict and type(b) is dict and a.keys() == b.keys():
        key = next(key for key in a if not same(a[key], b[key]))
        return first_difference(a[key], b[key], f"{path}[{key!r}]")
    return path, a, b
