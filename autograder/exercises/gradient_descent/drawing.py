"""Numbers, tensors and valleys that the checks of this lab draw."""

import torch

from autograder.exercises.drawing import F64, normal


def integer(rng, low, high):
    """A whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def small(rng, *shape, dtype=F64):
    """Whole numbers from ±1 to ±4: the first input of a check is one that a reader can follow by hand."""
    size = torch.randint(1, 5, shape, generator=rng)
    return (size * (2 * torch.randint(0, 2, shape, generator=rng) - 1)).to(dtype)


def valley(rng, curvatures):
    """A symmetric, non-diagonal Hessian with the given eigenvalues."""
    Q = torch.linalg.qr(normal(rng, len(curvatures), len(curvatures))).Q
    H = Q @ torch.diag(torch.as_tensor(curvatures, dtype=F64)) @ Q.T
    return (H + H.T) / 2
