"""Dual numbers: a value and its slope, carried together through every operation (forward-mode differentiation).

`value + slope·ε` with ε² = 0, so that `f(x + ε) = f(x) + f'(x) ε` exactly: the rules of calculus become the rules of
arithmetic (Clifford, 1873; for programs Wengert, "A simple automatic derivative evaluation program", 1964). Methods
have torch's names: the same `lambda x: (2 * x).sin()` takes a tensor, a Dual, or a Dual of Duals. Comparisons compare
values, so that an `if` takes the way that a number would take.
"""

import itertools
import math
import numbers
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def _comparison(compare: Callable) -> Any:
    return lambda x, y: compare(x.value, y.value if isinstance(y, Dual) and y.level == x.level else y)


class Dual:
    """A value and the slope of that value; each is a tensor, or again a Dual for higher derivatives.

    Each derivative has an ε of its own, known by its `level`: where two meet, the higher one takes the lower one's
    Dual as a constant. So a function that is differentiated may differentiate inside.
    """

    def __init__(self, value: Any, slope: Any = 0.0, level: int = 0):
        self.value, self.slope, self.level = value, slope, level

    def __repr__(self):
        return f"Dual({self.value}, {self.slope})"

    def __neg__(self):
        return Dual(-self.value, -self.slope, self.level)

    def __add__(self, other):
        x, y, level = alike(self, other)
        return Dual(x.value + y.value, x.slope + y.slope, level)

    def __sub__(self, other):
        return self + -other

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        x, y, level = alike(self, other)
        return Dual(x.value * y.value, x.slope * y.value + x.value * y.slope, level)

    def __truediv__(self, other):
        return self * (other if isinstance(other, Dual) else Dual(other, 0.0, self.level)) ** -1

    def __rtruediv__(self, other):
        return other * self**-1

    def __pow__(self, n):
        """x^n for a number n, whose slope n x^(n-1) x' is 0 for n = 0, also at x = 0; for a Dual n it is e^(n ln x)."""
        if isinstance(n, Dual):
            return (self.log() * n).exp()
        return Dual(self.value**n, n * self.value ** (n - 1) * self.slope if n else 0.0 * self.slope, self.level)

    def __rpow__(self, c):
        """c^x for a number c > 0: the slope is c^x ln(c) x'."""
        return (self * log(c)).exp()

    def exp(self):
        return Dual(exp(self.value), exp(self.value) * self.slope, self.level)

    def log(self):
        return Dual(log(self.value), self.slope / self.value, self.level)

    def sin(self):
        return Dual(sin(self.value), cos(self.value) * self.slope, self.level)

    def cos(self):
        return Dual(cos(self.value), -sin(self.value) * self.slope, self.level)

    def abs(self):
        """|x|, whose slope x/|x| does not exist at 0: NaN for a tensor there, and ZeroDivisionError for a float."""
        size = absolute(self.value)
        return Dual(size, self.value / size * self.slope, self.level)

    def __bool__(self):
        return bool(self.value)

    __radd__, __rmul__, __abs__ = __add__, __mul__, abs
    __eq__, __ne__ = _comparison(operator.eq), _comparison(operator.ne)
    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)


Number = float | torch.Tensor | Dual


def alike(x: Number, y: Number) -> tuple[Dual, Dual, int]:
    """Return both as Duals of the higher level, and the level; what has none, or a lower one, has slope 0 there."""
    level = max(a.level for a in (x, y) if isinstance(a, Dual))
    x, y = (a if isinstance(a, Dual) and a.level == level else Dual(a, 0.0, level) for a in (x, y))
    return x, y, level


def _elementary(on_numbers, name: str):
    """An elementary function for numbers, and by their method of that name for tensors and Duals."""
    return lambda x: getattr(x, name)() if isinstance(x, (torch.Tensor, Dual)) else on_numbers(x)


exp, log = _elementary(math.exp, "exp"), _elementary(math.log, "log")
sin, cos = _elementary(math.sin, "sin"), _elementary(math.cos, "cos")
absolute = _elementary(abs, "abs")
_levels = itertools.count(1)  # a derivative that begins later, perhaps inside another, has a higher one


def derivatives(f: Callable, x: Number, order: int = 1) -> list:
    """`[f(x), f'(x), ..., f⁽ᵒʳᵈᵉʳ⁾(x)]`, by Duals nested `order` deep; `x` is a number or tensor.

    Raises TypeError if f returns something else, such as a list, and ValueError for an order below 0.
    """
    if order < 0:
        raise ValueError(f"order is {order}; derivatives are of order 0 (the value), 1, 2, ...")
    levels = [next(_levels) for _ in range(order)]
    nested: Number = x
    for level in levels:
        nested = Dual(nested, 1.0, level)
    result = [f(nested)]
    for level in reversed(levels):  # the values' values, then the slope of the last
        result = [_parts(y, level)[0] for y in result] + [_parts(result[-1], level)[1]]
    return result


def partials(f: Callable, *xs: Number) -> list:
    """Return the partial derivatives of `f(*xs)`, a number or tensor, with one evaluation of `f` for each variable."""
    level = next(_levels)
    slopes = [[float(i == j) for j in range(len(xs))] for i in range(len(xs))]
    points = [[Dual(x, slope, level) for x, slope in zip(xs, row, strict=True)] for row in slopes]
    return [_parts(f(*point), level)[1] for point in points]


def _parts(y: Number, level: int) -> tuple[Any, Any]:
    """Return the value and the slope that a result has at a level."""
    if isinstance(y, np.ndarray) and y.dtype == object:
        raise TypeError("f returned an array of objects, as array * x does; write x * array, or return one number")
    if not isinstance(y, (Dual, torch.Tensor, np.ndarray, np.generic, numbers.Number)):
        raise TypeError(f"f returned a {type(y).__name__}; differentiate a function that returns one number or tensor")
    return (y.value, y.slope) if isinstance(y, Dual) and y.level == level else (y, 0.0)
