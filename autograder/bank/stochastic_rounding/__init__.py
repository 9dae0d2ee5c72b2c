"""Wrong but plausible answers to lab 06.

Each is the reference with one mistake, and what it calls is the reference's own: `spacing`, for one. Where the later
exercises call the wrong function, they lose checks too.
"""

from autograder.bank.stochastic_rounding import (
    bf16_round_bits,
    nearest_even,
    neighbours,
    rounding_kernel,
    running_sum,
    sgd_low_precision,
    stochastic_round,
    unmask,
)
