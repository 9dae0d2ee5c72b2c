"""Lab 02: gradient descent, one step at a time, then in parallel. Its ten exercises.

Oracles are independent of the solutions: closed forms, float64 autograd, torch.optim, eigenvalues, counted indices.
"""

from autograder.authoring import Lab
from autograder.exercises.gradient_descent import (
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

lab = Lab(
    "gradient_descent",
    title="One step at a time, then in parallel",
    exercises=(
        descent.exercise,
        mse_grad.exercise,
        max_stable_lr.exercise,
        minibatches.exercise,
        sgd.exercise,
        adam_step.exercise,
        parallel_gradient.exercise,
        rates.exercise,
        lr_schedule.exercise,
        unmask.exercise,
    ),
)
