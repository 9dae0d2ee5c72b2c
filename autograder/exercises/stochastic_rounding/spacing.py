"""The spacing of a number format's values."""

import torch

from hpcdl.numerics.rounding import BF16, FP8_E4M3, FP8_E5M2, FP16

BITS = {BF16: (7, -126), FP16: (10, -14), FP8_E4M3: (3, -6), FP8_E5M2: (2, -14)}  # mantissa bits, least exponent


def by_spacing(x, spacing):
    """The multiples of `spacing` below and above x, in float64."""
    return (x.double() / spacing).floor() * spacing, (x.double() / spacing).ceil() * spacing


def spacing_of(x, fmt, *, least: bool = True):
    """ε(x) of a floating-point format; without `least`, as if numbers below the smallest normal one had a finer one."""
    mantissa, emin = BITS[fmt]
    exponent = torch.frexp(x.double()).exponent - 1
    return 2.0 ** ((exponent.clamp_min(emin) if least else exponent) - mantissa)
