"""Rounding to fewer bits: formats as values, to nearest and at random.

    fmt = Fixed(4, 12)                         # or BF16, FP16, FP8_E4M3, FP8_E5M2
    lower, upper = neighbours(x, fmt)
    round_nearest(x, fmt)                      # ties to even
    stochastic_round(x, fmt, seed=0)           # E[result] = x; the same bits on every machine
    sgd_step(w, g, v, fmt, lr=0.1, seed=0)     # weights that are stored in few bits

Values stay float32 unless asked for in `fmt.dtype`, the form in which a format is stored.
"""

from hpcdl.numerics.rounding.formats import (
    BF16,
    FLOATS,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    Fixed,
    Float,
    Format,
    decode,
    encode,
)
from hpcdl.numerics.rounding.nearest import neighbours, round_nearest
from hpcdl.numerics.rounding.sgd import sgd_step
from hpcdl.numerics.rounding.stochastic import stochastic_round

__all__ = [
    "BF16",
    "FLOATS",
    "FP8_E4M3",
    "FP8_E5M2",
    "FP16",
    "Fixed",
    "Float",
    "Format",
    "decode",
    "encode",
    "neighbours",
    "round_nearest",
    "sgd_step",
    "stochastic_round",
]
