"""Lab `calculus`: its eight exercises. Oracles: closed forms and torch's autograd in float64."""

from autograder.authoring import Lab
from autograder.exercises.calculus import (
    best_step,
    chain_gradient,
    derivative,
    dual,
    grad_check,
    gradient,
    logistic,
    unmask,
)

lab = Lab(
    "calculus",
    title="The derivative, measured",
    exercises=(
        derivative.exercise,
        best_step.exercise,
        logistic.exercise,
        gradient.exercise,
        dual.exercise,
        chain_gradient.exercise,
        grad_check.exercise,
        unmask.exercise,
    ),
)
