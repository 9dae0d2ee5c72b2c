"""Wrong answers to lab `model_parallel`."""

from autograder.bank.model_parallel import (
    moe,
    one_weird_trick,
    ring_attention,
    run_stage,
    schedules,
    tensor_parallel,
    zero_bubble,
)
