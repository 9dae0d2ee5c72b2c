"""Which of eight programs round to the nearest value, ties to even? Oracle: Python's round of an exact fraction."""

import math
from fractions import Fraction

import torch

from autograder.checks.impostors import LineUp, Suspect, choice, number
from autograder.exercises.unmasking import examines
from hpcdl.numerics.rounding import FP16, Fixed

FORMATS = {"Fixed(4, 2)": Fixed(4, 2), "FP16": FP16}


def ask(nearest, x, fmt):
    """The value of x, which is float32's first."""
    return float(nearest(torch.tensor(x, dtype=torch.float32).item(), FORMATS[fmt]))


def spacing(x, fmt):
    """The distance of the format's values around x."""
    if isinstance(fmt, Fixed):
        return fmt.eps
    exponent = math.frexp(x)[1] - 1
    return 2.0 ** (max(exponent, fmt.min_exponent) - fmt.mantissa_bits)


def bounded(value, fmt):
    """The end of a fixed-point format, or infinity, for what lies beyond."""
    if isinstance(fmt, Fixed):
        return min(max(value, fmt.min), fmt.max)
    return math.copysign(math.inf, value) if abs(value) > fmt.max else value


def truth(x, fmt):
    eps = spacing(x, fmt)
    return bounded(round(Fraction(x) / Fraction(eps)) * eps, fmt)


def by_torch(x, fmt):
    if isinstance(fmt, Fixed):
        return (torch.tensor(x, dtype=torch.float64) / fmt.eps).round().clamp(
            fmt.min / fmt.eps, fmt.max / fmt.eps
        ) * fmt.eps
    return torch.tensor(x, dtype=torch.float32).half().double()


def large_number_trick(x, fmt):
    """At 1.5 · 2^52 spacings float64 has no digits beyond one: adding it rounds, to even."""
    large = 1.5 * 2.0**52 * spacing(x, fmt)
    return bounded((x + large) - large, fmt)


def the_nearer_neighbour(x, fmt):
    eps = spacing(x, fmt)
    low = math.floor(x / eps)
    above = x / eps - low
    return bounded((low + (above > 0.5 or (above == 0.5 and low % 2 == 1))) * eps, fmt)


def away_from_zero(x, fmt):
    eps = spacing(x, fmt)
    return bounded(math.copysign(math.floor(abs(x) / eps + 0.5) * eps, x), fmt)


def wraps_round(x, fmt):
    """Keeps the low bits of a fixed-point word, as integers do."""
    if not isinstance(fmt, Fixed):
        return truth(x, fmt)
    words, k = round((fmt.max - fmt.min) / fmt.eps) + 1, round(x / fmt.eps)
    return ((k - round(fmt.min / fmt.eps)) % words) * fmt.eps + fmt.min


def no_subnormals(x, fmt):
    if not isinstance(fmt, Fixed) and abs(x) < 2.0**fmt.min_exponent:
        return math.copysign(0.0, x)
    return truth(x, fmt)


def end_before_rounding(x, fmt):
    if not isinstance(fmt, Fixed) and abs(x) > fmt.max:
        return math.copysign(math.inf, x)
    return truth(x, fmt)


line_up = LineUp(
    "unmask_rounding",
    truth=truth,
    suspects=(
        Suspect(
            "A",
            wraps_round,
            "keeps the low bits of a fixed-point word",
            "a number beyond the ends of the fixed-point format",
        ),
        Suspect("B", the_nearer_neighbour),
        Suspect(
            "C",
            no_subnormals,
            "turns every subnormal number into zero",
            "a number of FP16 below its smallest normal one",
        ),
        Suspect("D", large_number_trick),
        Suspect(
            "E",
            end_before_rounding,
            "turns numbers above FP16's largest into infinity, before it rounds",
            "a number just above FP16's largest, 65504, which is nearer to it than to the next",
        ),
        Suspect(
            "F",
            away_from_zero,
            "rounds ties away from zero",
            "a number in the middle between two, with an even lower one",
        ),
        Suspect("G", truth),
        Suspect("H", by_torch),
    ),
    fields={"x": number(-1e6, 1e6), "fmt": choice(*FORMATS)},
    ask=ask,
    tolerance=0.0,
)
exercise = examines(line_up)
