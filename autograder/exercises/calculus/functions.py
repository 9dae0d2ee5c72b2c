"""Functions of several variables whose gradient is asked for, and what it is by torch's autograd."""

import torch

from autograder.exercises.calculus.drawing import number


def autograd(f, x: torch.Tensor) -> torch.Tensor:
    """The gradient of `f(x).sum()` by torch, the oracle of this lab."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(f(x).sum(), x)[0]


def drawn(f, rng, n: int = 3):
    """Return `f` with n drawn numbers for those after x, so that its values and formulas are unknown beforehand."""
    numbers = [number(0.7, 1.3, rng) for _ in range(n)]

    def of(x):
        return f(x, *numbers)

    of.__name__ = f.__name__
    return of


def quadratic(x, a, b, c):
    return a * x[0] ** 2 + b * x[0] * x[1] + c * x[1] ** 2


def product(x, a, b, _):
    return a * (x + b).prod()


def sphere(x, a=1.0, *_):
    return a * (x**2).sum()


def mixed(x, a, b, c):
    return a * torch.sin(b * x[0]) * torch.exp(c * x[1]) + b * x[2] ** 3


def rosenbrock(x, a, b, c):
    return (100 * a * (x[1:] - b * x[:-1] ** 2) ** 2 + (c - x[:-1]) ** 2).sum()
