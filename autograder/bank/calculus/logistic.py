"""Wrong answers to `logistic` and `logistic_grad`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("calculus.logistic")


@wrong("e^x / (1 + e^x) overflows", fails="no_overflow", says="inf / inf is not a number")
def logistic(x):
    return torch.exp(x) / (1 + torch.exp(x))


@wrong("sign of the exponent", fails=("logistic_values", "no_overflow"), says="the exponent is -x")
def logistic(x):
    return 1 / (1 + torch.exp(x))


@wrong("applies the logistic function to its own output", fails="slope_from_the_output", says="y already is f(x)")
def logistic_grad(y):
    return logistic(y) * (1 - logistic(y))


slip("the rule of tanh", "y * (1 - y)", "1 - y**2", fails="slope_from_the_output", says="the rule of tanh")
slip(
    "computes in x itself",
    "    e = torch.exp(-x.abs())\n    return torch.where(x >= 0",
    "    positive = x >= 0\n    e = x.abs_().neg_().exp_()\n    return torch.where(positive",
    fails="logistic_values",
    says="changed its argument x",
)
slip(
    "float64 for every x",
    "torch.exp(-x.abs())",
    "torch.exp(-x.double().abs())",
    fails="no_overflow",
    says="has dtype float64, expected float32",
)
slip(
    "computes in y itself", "y * (1 - y)", "y.mul_(1 - y)", fails="slope_from_the_output", says="changed its argument y"
)
slip(
    "float64 for every y",
    "y * (1 - y)",
    "y.double() * (1 - y)",
    fails="slope_from_the_output",
    says="has dtype float64, expected float32",
)
