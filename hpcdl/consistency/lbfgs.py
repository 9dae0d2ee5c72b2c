"""L-BFGS that refers to vectors only by number and exchanges a few scalars (Nocedal 1980; Dean et al. 2012, 4.2).

`minimise` never sees an element: the vectors may be sharded on other ranks (`sandblaster`), or local.
"""

from collections.abc import Callable
from typing import Protocol

import torch

WEIGHTS, GRADIENT, DIRECTION, BEFORE = range(4)  # the numbers of vectors; from 4 on the pairs s and y
CURVED = 1e-10  # y s at least: what is less says nothing about the curvature


class Vectors(Protocol):
    """Vectors by their numbers, zeros at first."""

    def dot(self, a: int, b: int) -> float:
        """Return the sum of a_i b_i."""

    def sum_of_sizes(self, a: int) -> float:
        """Return the sum of |a_i|."""

    def largest(self, a: int) -> float:
        """Return the largest |a_i|."""

    def copy(self, out: int, a: int, scale: float = 1.0) -> None:
        """out = scale a."""

    def add(self, out: int, a: int, scale: float = 1.0) -> None:
        """out += scale a."""


class LocalVectors:
    """`Vectors` of `numel` elements in this process: all of them, or a shard's."""

    def __init__(self, numel: int, dtype: torch.dtype = torch.float64):
        self.numel, self.dtype = numel, dtype
        self._tensors: dict[int, torch.Tensor] = {}

    def __getitem__(self, number: int) -> torch.Tensor:
        if number not in self._tensors:
            self._tensors[number] = torch.zeros(self.numel, dtype=self.dtype)
        return self._tensors[number]

    def dot(self, a: int, b: int) -> float:
        return (self[a] @ self[b]).item()

    def sum_of_sizes(self, a: int) -> float:
        return self[a].abs().sum().item()

    def largest(self, a: int) -> float:
        return self[a].abs().max().item() if self.numel else 0.0

    def copy(self, out: int, a: int, scale: float = 1.0) -> None:
        torch.mul(self[a], scale, out=self[out])

    def add(self, out: int, a: int, scale: float = 1.0) -> None:
        self[out].add_(self[a], alpha=scale)


def direction(vectors: Vectors, pairs: list[int]) -> None:
    """DIRECTION = -H GRADIENT, by the two loops over the pairs (s, y = s + 1) of `pairs`, oldest first.

    H is what the pairs know of the inverse curvature; without a pair it is 1. 3 |pairs| + 1 scalars, or none, are all
    that is asked of the elements.
    """
    vectors.copy(DIRECTION, GRADIENT, -1.0)
    inner = {s: vectors.dot(s + 1, s) for s in pairs}
    alpha = {}
    for s in reversed(pairs):
        alpha[s] = vectors.dot(s, DIRECTION) / inner[s]
        vectors.add(DIRECTION, s + 1, -alpha[s])
    if pairs:
        last = pairs[-1]
        vectors.copy(DIRECTION, DIRECTION, inner[last] / vectors.dot(last + 1, last + 1))
    for s in pairs:
        beta = vectors.dot(s + 1, DIRECTION) / inner[s]
        vectors.add(DIRECTION, s, alpha[s] - beta)


def minimise(
    vectors: Vectors,
    evaluate: Callable[[], float],
    history: int = 10,
    lr: float = 1.0,
    tolerance: float = 1e-8,
    most: int = 200,
) -> list[float]:
    """Step until no element of the gradient is larger than `tolerance`, `most` times at most; the loss at each step.

    `evaluate()` writes the gradient at WEIGHTS into GRADIENT and returns the loss. Steps are those of torch.optim.LBFGS
    without a line search: lr times the direction, the first lr min(1, 1 / sum |g_i|) times. Raises FloatingPointError
    where the loss is not finite.
    """
    pairs: list[int] = []
    losses = [_finite(evaluate(), 0)]
    while vectors.largest(GRADIENT) > tolerance and len(losses) <= most:
        direction(vectors, pairs)
        step = lr if len(losses) > 1 else lr * min(1.0, 1.0 / vectors.sum_of_sizes(GRADIENT))
        vectors.add(WEIGHTS, DIRECTION, step)
        vectors.copy(BEFORE, GRADIENT)
        losses.append(_finite(evaluate(), len(losses)))
        _remember(vectors, pairs, step, history)
    return losses


def _remember(vectors: Vectors, pairs: list[int], step: float, history: int) -> None:
    """Keep the last step and its change of the gradient; replace the oldest if there are `history` pairs."""
    unused = {4 + 2 * i for i in range(history + 1)}.difference(pairs)
    s = min(unused)
    vectors.copy(s, DIRECTION, step)
    vectors.copy(s + 1, GRADIENT)
    vectors.add(s + 1, BEFORE, -1.0)
    if vectors.dot(s + 1, s) > CURVED:
        pairs.append(s)
        del pairs[:-history]


def _finite(loss: float, step: int) -> float:
    if not abs(loss) < float("inf"):
        raise FloatingPointError(f"the loss is {loss} after {step} steps of L-BFGS; take a smaller lr")
    return loss
