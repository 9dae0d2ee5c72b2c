"""Lab 06: less precision, on purpose. Its eight exercises.

Every expected value comes from `autograder.checks.number_formats`, which enumerates a format from its codes. Tests
of odds go through all random numbers of a grid and are exact; those that draw fail a right answer once in 10⁹ runs,
twice in a row to count.
"""

from autograder.authoring import Lab
from autograder.exercises.stochastic_rounding import (
    bf16_round_bits,
    nearest_even,
    neighbours,
    rounding_kernel,
    running_sum,
    sgd_low_precision,
    stochastic_round,
    unmask,
)

lab = Lab(
    "stochastic_rounding",
    title="Less precision, on purpose",
    exercises=(
        neighbours.exercise,
        nearest_even.exercise,
        stochastic_round.exercise,
        bf16_round_bits.exercise,
        running_sum.exercise,
        sgd_low_precision.exercise,
        rounding_kernel.exercise,
        unmask.exercise,
    ),
)
