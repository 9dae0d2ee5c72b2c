# calculus.logistic: 3 points, flagged, long
# The sum of exponentials never overflows.
import torch


def logistic(x):
    return torch.exp(-torch.logaddexp(torch.zeros_like(x), -x))


def logistic_grad(y):
    return y * (1 - y)
