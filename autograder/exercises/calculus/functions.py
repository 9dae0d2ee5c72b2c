"""Functions of several variables whose gradient is asked for, and what it is by torch's autograd."""

import torch


def autograd(f, x: torch.Tensor) -> torch.Tensor:
    """The gradient of `f(x).sum()` by torch, the oracle of this lab."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(f(x).sum(), x)[0]


def quadratic(x):
    return x[0] ** 2 + x[0] * x[1] + x[1] ** 2


def product(x):
    return x.prod()


def sphere(x):
    return (x**2).sum()


def mixed(x):
    return torch.sin(x[0]) * torch.exp(x[1]) + x[2] ** 3


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
