"""Products of numbers as they are written: 1.1 * 100 / 10 is 11, and not 11.000000000000002, before it is rounded."""

import math
from fractions import Fraction


def as_written(x: float) -> Fraction:
    """Return the fraction that a number's shortest decimal form means; ValueError for infinity and NaN.

    >>> as_written(1.1)
    Fraction(11, 10)
    """
    if not math.isfinite(x):
        raise ValueError(f"{x!r} is not a number that can be rounded; give a finite one")
    return Fraction(x) if isinstance(x, int) else Fraction(repr(float(x)))


def product(*factors: float, over: float = 1) -> Fraction:
    """Return the product of `factors`, divided by `over`, exactly: for `math.ceil`, `math.floor` and `round`.

    >>> import math
    >>> math.ceil(product(1.1, 100, over=10)), math.ceil(1.1 * 100 / 10)
    (11, 12)
    """
    return math.prod(map(as_written, factors), start=Fraction(1)) / as_written(over)
