"""Wrong but plausible answers to lab 02: each must lose exactly the checks it names, with a message that names it.

Functions of one name stand one after the other: each is a wrong answer of its own, not code that runs here.
"""

from autograder.bank.gradient_descent import (
    adam_step,
    descent,
    lr_schedule,
    max_stable_lr,
    minibatches,
    mse_grad,
    parallel_gradient,
    rates,
    sgd,
    unmask,
)
