"""Wrong answers to lab 01, each with the checks it must fail and the words that name its mistake."""

from autograder.bank.calculus import (
    best_step,
    chain_gradient,
    derivative,
    dual,
    grad_check,
    gradient,
    logistic,
    unmask,
)
