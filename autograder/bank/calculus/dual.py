"""Wrong answers to `Dual`: each inherits from the right one that stands before it, and spoils one method."""

import math

from autograder.bank.slips import answers_to
from hpcdl.numerics.dual import Dual

wrong, _ = answers_to("calculus.Dual")


@wrong(
    "forgets the sign in the quotient rule",
    fails=("quotients", "compositions"),
    says="the quotient rule is (f/g)' = (f'g - fg') / g²",
)
class Dual(Dual):
    def __truediv__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 0.0)
        return Dual(self.value / g, (self.slope * g + self.value * dg) / g**2)


@wrong(
    "forgets the square in the quotient rule",
    fails=("quotients", "compositions"),
    says="The square in the denominator is missing",
)
class Dual(Dual):
    def __truediv__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 0.0)
        return Dual(self.value / g, (self.slope * g - self.value * dg) / g)


@wrong("multiplies the slopes", fails=("products", "compositions"), says="You multiplied the slopes")
class Dual(Dual):
    def __mul__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 1.0)
        return Dual(self.value * g, self.slope * dg)

    __rmul__ = __mul__


@wrong(
    "no plain numbers in a product",
    fails=("products", "compositions"),
    says="A plain number is a constant: make it a Dual of slope 0 first",
)
class Dual(Dual):
    def __mul__(self, other):
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    __rmul__ = __mul__


@wrong(
    "no constants on the left of a minus",
    fails=("sums", "compositions"),
    says="With a number on the left Python calls a reflected method",
)
class Dual(Dual):
    def __rsub__(self, other):
        return NotImplemented


@wrong("a reflected minus the wrong way round", fails=("sums", "compositions"), says="The operands are exchanged")
class Dual(Dual):
    def __rsub__(self, other):
        return Dual(self.value - other, self.slope)


@wrong("a constant gets slope 1", fails=("sums", "compositions"), says="A constant has slope 0")
class Dual(Dual):
    def __add__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 1.0)
        return Dual(self.value + g, self.slope + dg)

    __radd__ = __add__

    def __sub__(self, other):
        return self + -other if isinstance(other, Dual) else Dual(self.value - other, self.slope)

    def __rsub__(self, other):
        return Dual(other - self.value, -self.slope)


@wrong(
    "sin without the chain rule",
    fails=("elementary_functions", "compositions"),
    says="multiply by x', the slope that x brings along",
)
class Dual(Dual):
    def sin(self):
        return Dual(math.sin(self.value), math.cos(self.value))


@wrong("forgets ln c in c ** x", fails=("powers", "compositions"), says="The factor ln 2 is missing")
class Dual(Dual):
    def __rpow__(self, c):
        return Dual(c**self.value, c**self.value * self.slope)


@wrong("returns a pair of numbers", fails=("elementary_functions", "compositions"), says="return Dual(value, slope)")
class Dual(Dual):
    def exp(self):
        return math.exp(self.value), math.exp(self.value) * self.slope


@wrong("adds in place", fails=("sums", "compositions"), says="changed its operand x")
class Dual(Dual):
    def __add__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 0.0)
        self.value, self.slope = self.value + g, self.slope + dg
        return self

    __radd__ = __add__


@wrong("sin by eleven terms of its series", fails="compositions", says="(9 * x).sin() - y")
class Dual(Dual):
    def sin(self):
        x = self.value
        sine = sum((-1) ** k * x ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(11))
        return Dual(sine, math.cos(x) * self.slope)
