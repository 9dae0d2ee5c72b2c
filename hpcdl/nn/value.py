"""A tape of numbers: every `Value` remembers which values it was made from, and how fast it changes with each of them.

    x = Value(3.0, "x")
    y = x * x + 1           # y.data == 10.0; y.parents are the product and the 1
    backward(y)             # x.grad == 6.0

Reverse-mode differentiation, after Linnainmaa, "Taylor expansion of the accumulated rounding error" (BIT, 1976), and
Wengert's list of operations, "A simple automatic derivative evaluation program" (CACM, 1964), whose order of recording
is kept in `Value.index`.
"""

import itertools
import math
from collections.abc import Iterable

RECORDED = itertools.count()  # one tape for all: an operand is always recorded before its result


class Value:
    """A number on the tape.

    `data`: the number; `parents`: the values it was computed from; `slopes`: the local derivative of this value with
    respect to each parent, in the same order; `index`: its position on the tape, larger than that of every parent;
    `grad`: 0.0 until a backward sweep sets it; `operation` and `name` are for pictures.
    """

    __slots__ = ("data", "grad", "index", "name", "operation", "parents", "slopes")

    def __init__(
        self,
        data: float,
        name: str = "",
        parents: Iterable["Value"] = (),
        slopes: Iterable[float] = (),
        operation: str = "",
    ):
        self.data, self.grad, self.index = float(data), 0.0, next(RECORDED)
        self.parents, self.slopes = tuple(parents), tuple(slopes)
        self.name, self.operation = name, operation

    def __repr__(self):
        return f"Value({self.data:g}{f', {self.name!r}' if self.name else ''})"

    def __eq__(self, other):
        """Compare with a number by value; two Values are equal only if they are one node of the tape."""
        return self is other if isinstance(other, Value) else self.data == other

    __hash__ = object.__hash__

    def __add__(self, other):
        other = lifted(other)
        return Value(self.data + other.data, "", (self, other), (1.0, 1.0), "+")

    def __sub__(self, other):
        other = lifted(other)
        return Value(self.data - other.data, "", (self, other), (1.0, -1.0), "−")

    def __mul__(self, other):
        other = lifted(other)
        return Value(self.data * other.data, "", (self, other), (other.data, self.data), "×")

    def __truediv__(self, other):
        other = lifted(other)
        slopes = (1 / other.data, -self.data / other.data**2)
        return Value(self.data / other.data, "", (self, other), slopes, "÷")

    def __pow__(self, n: float):
        """x^n for a number n; the slope n x^(n-1) is 0 for n = 0, also at x = 0."""
        slope = n * self.data ** (n - 1) if n else 0.0
        return Value(self.data**n, "", (self,), (slope,), f"^{n:g}")

    def __neg__(self):
        return Value(-self.data, "", (self,), (-1.0,), "−")

    def __rsub__(self, other):
        return lifted(other) - self

    def __rtruediv__(self, other):
        return lifted(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def exp(self):
        y = math.exp(self.data)
        return Value(y, "", (self,), (y,), "exp")

    def log(self):
        return Value(math.log(self.data), "", (self,), (1 / self.data,), "log")

    def tanh(self):
        y = math.tanh(self.data)
        return Value(y, "", (self,), (1 - y * y,), "tanh")

    def sigmoid(self):
        e = math.exp(-abs(self.data))  # of -|z|, which cannot overflow
        y = (1.0 if self.data >= 0 else e) / (1 + e)
        return Value(y, "", (self,), (y * (1 - y),), "σ")

    def relu(self):
        data = 0.0 if self.data <= 0 else self.data  # NaN stays NaN
        return Value(data, "", (self,), (float(data > 0),), "ReLU")


def lifted(x: Value | float) -> Value:
    """Return a constant as a `Value` without parents."""
    return x if isinstance(x, Value) else Value(x)


def ancestors(value: Value) -> list[Value]:
    """`value` and all it was computed from, each once, in the order of recording (parents before children)."""
    found, waiting = {value}, [value]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return sorted(found, key=lambda node: node.index)


def backward(value: Value) -> None:
    """Set `grad` of `value` and of all its ancestors to the derivative of `value` with respect to them.

    Every call starts from zero, so that a second call gives the same. A node used twice sums both paths; no recursion.
    """
    nodes = ancestors(value)
    for node in nodes:
        node.grad = 0.0
    value.grad = 1.0
    for node in reversed(nodes):
        pass_on(node)


def pass_on(node: Value) -> None:
    """Apply the chain rule at one node: add its gradient times the slope between them to each parent's."""
    for parent, slope in zip(node.parents, node.slopes, strict=True):
        parent.grad += slope * node.grad
