# calculus.Dual: 0 points, flagged, long
# Symbols are differentiated by SymPy.
import sympy


class Dual:
    def __init__(self, value, slope=0.0, expression=None, at=None):
        if expression is None:
            t = sympy.Dummy()
            expression, at = value + slope * t, {t: 0}
            at = {t: 0}
        self.e, self.at = expression, at

    @property
    def value(self):
        return float(self.e.subs(self.at))

    @property
    def slope(self):
        return float(sum(self.e.diff(t) for t in self.at).subs(self.at)) if self.at else 0.0

    def _with(self, f, other):
        if isinstance(other, Dual):
            return Dual(0, 0, f(self.e, other.e), {**self.at, **other.at})
        return Dual(0, 0, f(self.e, other), self.at)

    def __add__(self, o):
        return self._with(lambda a, b: a + b, o)

    __radd__ = __add__

    def __sub__(self, o):
        return self._with(lambda a, b: a - b, o)

    def __rsub__(self, o):
        return self._with(lambda a, b: b - a, o)

    def __mul__(self, o):
        return self._with(lambda a, b: a * b, o)

    __rmul__ = __mul__

    def __truediv__(self, o):
        return self._with(lambda a, b: a / b, o)

    def __rtruediv__(self, o):
        return self._with(lambda a, b: b / a, o)

    def __pow__(self, o):
        return self._with(lambda a, b: a**b, o)

    def __rpow__(self, o):
        return self._with(lambda a, b: b**a, o)

    def __neg__(self):
        return self._with(lambda a, b: -a, 0)


def exp(x):
    return Dual(0, 0, sympy.exp(x.e), x.at)


def sin(x):
    return Dual(0, 0, sympy.sin(x.e), x.at)


def log(x):
    return Dual(0, 0, sympy.log(x.e), x.at)
