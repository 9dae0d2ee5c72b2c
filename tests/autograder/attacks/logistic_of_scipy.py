# calculus.logistic: 3 points, flagged
# SciPy has the function in C.
from scipy.special import expit


def logistic(x):
    import torch

    return torch.from_numpy(expit(x.numpy()))


def logistic_grad(y):
    return y * (1 - y)
