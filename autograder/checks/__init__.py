"""Building blocks of checks. Each function returns nothing, or raises `CheckFailure` with its own sentence.

`ladder`: a value's type, shape, dtype, and whether it is right, by `equality`. `evidence`: checks that need more than
one value: a property of all inputs, a length, a share or a mean of random draws, a gradient, counts of calls, time
relative to a reference. Shared by several labs: `messages` for functions over p ranks, `number_formats` for rounding,
`impostors` for exercises in which the student examines programs.

May import: this room, `show`, `hpcdl`.
"""

from .equality import alike, duplicates, is_exact, is_number, same
from .evidence import counted, faster, for_all, gradient, length, mean, retested, share
from .ladder import ArgumentChanged, CheckFailure, close, equal, fail, leaves_alone, tensor, that, unchanged

__all__ = [
    "ArgumentChanged",
    "CheckFailure",
    "alike",
    "close",
    "counted",
    "duplicates",
    "equal",
    "fail",
    "faster",
    "for_all",
    "gradient",
    "is_exact",
    "is_number",
    "leaves_alone",
    "length",
    "mean",
    "retested",
    "same",
    "share",
    "tensor",
    "that",
    "unchanged",
]
