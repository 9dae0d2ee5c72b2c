# calculus.logistic: 3 points, flagged
# Torch has operators a second time, in Python, for its compilers.
import torch._refs


def logistic(x):
    return torch._refs.sigmoid(x)


def logistic_grad(y):
    return y * (1 - y)
