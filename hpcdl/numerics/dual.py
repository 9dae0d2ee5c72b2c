"""Dual numbers: a value and its slope, carried together through every operation (forward-mode differentiation).

`value + slope·ε` with ε² = 0, so that `f(x + ε) = f(x) + f'(x) ε` exactly: the rules of calculus become the rules of
arithmetic (Clifford, 1873; for programs Wengert, "A simple automatic derivative evaluation program", 1964). Methods
have torch's names: the same `lambda x: (2 * x).sin()` takes a tensor, a Dual, or a Dual of Duals.
"""

import math
from collections.abc import Callable
from typing import Any

import torch


class Dual:
    """A value and the slope of that value; each is a tensor, or again a Dual for higher derivatives."""

    def __init__(self, value: Any, slope: Any = 0.0):
        self.value, self.slope = value, slope

    def __repr__(self):
        return f"Dual({self.value}, {self.slope})"

    def __neg__(self):
        return Dual(-self.value, -self.slope)

    def __add__(self, other):
        other = lifted(other)
        return Dual(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other):
        return self + -other

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        other = lifted(other)
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    def __truediv__(self, other):
        return self * lifted(other) ** -1

    def __rtruediv__(self, other):
        return other * self**-1

    def __pow__(self, n):
        """x^n for a number n; the slope n x^(n-1) x' is 0 for n = 0, also at x = 0."""
        return Dual(self.value**n, n * self.value ** (n - 1) * self.slope if n else 0.0 * self.slope)

    def __rpow__(self, c):
        """c^x for a number c > 0: the slope is c^x ln(c) x'."""
        return (self * math.log(c)).exp()

    def exp(self):
        return Dual(exp(self.value), exp(self.value) * self.slope)

    def log(self):
        return Dual(log(self.value), self.slope / self.value)

    def sin(self):
        return Dual(sin(self.value), cos(self.value) * self.slope)

    def cos(self):
        return Dual(cos(self.value), -sin(self.value) * self.slope)

    def abs(self):
        """|x|, whose slope x/|x| does not exist at 0: it is NaN there."""
        size = absolute(self.value)
        return Dual(size, self.value / size * self.slope)

    __radd__, __rmul__ = __add__, __mul__


Number = float | torch.Tensor | Dual


def lifted(x: Number) -> Dual:
    """Return a constant as a Dual: its slope is 0."""
    return x if isinstance(x, Dual) else Dual(x)


def _elementary(on_numbers, name: str):
    """An elementary function for numbers, and by their method of that name for tensors and Duals."""
    return lambda x: getattr(x, name)() if isinstance(x, (torch.Tensor, Dual)) else on_numbers(x)


exp, log = _elementary(math.exp, "exp"), _elementary(math.log, "log")
sin, cos = _elementary(math.sin, "sin"), _elementary(math.cos, "cos")
absolute = _elementary(abs, "abs")


def derivatives(f: Callable, x: Number, order: int = 1) -> list:
    """`[f(x), f'(x), ..., f⁽ᵒʳᵈᵉʳ⁾(x)]`, by Duals nested `order` deep; `x` is a number or tensor."""
    nested: Number = x
    for level in range(order):
        nested = Dual(nested, _one(level))
    result = [f(nested)]
    for _ in range(order):  # peel one level: the values' values, then the slope of the last
        result = [_part(y, "value") for y in result] + [_part(result[-1], "slope")]
    return result


def partials(f: Callable, *xs: Number) -> list:
    """Return the partial derivatives of `f(*xs)`, one evaluation of `f` for each variable."""
    return [lifted(f(*[Dual(x, float(i == j)) for j, x in enumerate(xs)])).slope for i in range(len(xs))]


def _one(level: int):
    """The slope 1 of a variable that is already nested `level` deep."""
    return 1.0 if level == 0 else Dual(_one(level - 1), 0.0)


def _part(y, name: str):
    return getattr(y, name) if isinstance(y, Dual) else y if name == "value" else 0.0
