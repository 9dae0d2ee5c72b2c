"""Gradient descent on a linear model, naive and clear: what the pictures of lab 02 are computed with.

Notation of the lectures: data `X (n, d)`, `y (n,)`, weights `w (d,)`, loss `L(w) = 1/n sum_i (x_i . w - y_i)^2`,
learning rate `lr`. Tensors are torch, float64 in the pictures.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Gradient = Callable[[Tensor], Tensor]


def mse_loss(w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Return the mean of the squared errors, a 0-d tensor."""
    return ((X @ w - y) ** 2).mean()


def mse_grad(w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the mean squared error, `2/n X^T (X w - y)`, shape `(d,)`."""
    return 2 / len(y) * X.T @ (X @ w - y)


def mse_hessian(X: Tensor) -> Tensor:
    """Return the second derivatives of the mean squared error, `2/n X^T X`, shape `(d, d)`; the same for every `w`."""
    return 2 / len(X) * X.T @ X


def max_stable_lr(hessian: Tensor, beta: float = 0.0) -> float:
    """Return `2 (1 + beta) / lambda_max`, above which descent with momentum `beta` diverges (Polyak 1964)."""
    return 2 * (1 + beta) / float(torch.linalg.eigvalsh(hessian)[-1])


def descend(grad: Gradient, w0: Tensor, lr: float, steps: int, beta: float = 0.0) -> Tensor:
    """Return the path `(steps + 1, d)` of `v <- beta v + grad(w)`, `w <- w - lr v` from `w0`; may end in inf or nan."""
    path, v = [w0], torch.zeros_like(w0)
    for _ in range(steps):
        v = beta * v + grad(path[-1])
        path.append(path[-1] - lr * v)
    return torch.stack(path)


def minibatch_grad(X: Tensor, y: Tensor, batch_size: int, generator: torch.Generator) -> Gradient:
    """Return a gradient that looks at the next `batch_size` samples at each call, in a new random order each epoch."""

    def batches():
        while True:
            yield from torch.randperm(len(y), generator=generator).split(batch_size)

    upcoming = batches()

    def grad(w: Tensor) -> Tensor:
        batch = next(upcoming)
        return mse_grad(w, X[batch], y[batch])

    return grad
