"""Numbers, tensors and valleys that the checks of this lab draw."""

import itertools
from collections import Counter

import torch

from autograder import checks
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


SHUFFLED = 50  # the length of an order that `shuffled` can judge
MOST = 15  # steps of one length among 49: of all orders, fewer than 49 / 15! = 4e-11 have so many


def shuffled(order: list[int], *, advice: str) -> None:
    """Check that an order of `SHUFFLED` indices is random: its steps, modulo their number, are of many lengths.

    One that turns a list, reverses it, takes every k-th of it or keeps neighbours together has few.
    """
    lengths = Counter((b - a) % len(order) for a, b in itertools.pairwise(order))
    length, times = lengths.most_common(1)[0]
    step = length if length <= len(order) // 2 else length - len(order)
    checks.that(
        times < MOST,
        f"The order is not random: {times} of {len(order) - 1} times the next index is {abs(step)} "
        f"{'more' if step > 0 else 'less'} than the one before, as in a list that is turned or cut. {advice}",
        got=order,
    )
