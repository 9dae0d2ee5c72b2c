"""Wrong answers to `logistic` and `logistic_grad`."""

import torch

from autograder.authoring import wrong


@wrong("calculus.logistic", "e^x / (1 + e^x) overflows", fails="no_overflow", says="inf / inf is not a number")
def logistic(x):
    return torch.exp(x) / (1 + torch.exp(x))


@wrong(
    "calculus.logistic",
    "sign of the exponent",
    fails=("logistic_values", "no_overflow"),
    says="the exponent is -x",
)
def logistic(x):
    return 1 / (1 + torch.exp(x))


@wrong(
    "calculus.logistic",
    "applies the logistic function to its own output",
    fails="slope_from_the_output",
    says="y already is f(x)",
)
def logistic_grad(y):
    return logistic(y) * (1 - logistic(y))


@wrong("calculus.logistic", "the rule of tanh", fails="slope_from_the_output", says="the rule of tanh")
def logistic_grad(y):
    return 1 - y**2
