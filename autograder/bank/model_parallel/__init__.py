"""Wrong answers to lab `model_parallel`."""

from autograder.bank.model_parallel import (
    design,
    one_weird_trick,
    run_stage,
    schedules,
    tensor_parallel,
    zero_bubble,
)
