"""Rosenblatt's perceptron with its history: every update it makes, until an epoch passes without one.

Notation of the lectures: a sample is x = (1, x_1, ..., x_d), whose first entry x_0 = 1 carries the bias w_0; z = w^T x;
the prediction is sgn(z), with sgn(0) = +1; labels are +1 and -1.

Source: F. Rosenblatt, "The perceptron: a probabilistic model for information storage and organization in the brain"
(Psychological Review, 1958); the bound: A. B. J. Novikoff, "On convergence proofs on perceptrons" (1962).
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class History:
    """What a run of the perceptron did. U updates, E epochs.

    `weights` (U + 1, d + 1): the start and w after each update; `samples` and `epochs` (U): which sample was wrong, and
    when; `mistakes` (E): updates per epoch; `settled`: whether the last epoch made none.
    """

    weights: torch.Tensor
    samples: list[int]
    epochs: list[int]
    mistakes: list[int]
    settled: bool


def with_bias(X: torch.Tensor) -> torch.Tensor:
    """X (n, d) with x_0 = 1 put in front of every sample: (n, d + 1)."""
    return torch.cat([X.new_ones(len(X), 1), X], dim=1)


def predict(w: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """sgn(w^T x) for each row of X (n, d + 1), in {-1, +1}, with sgn(0) = +1; shape (n,)."""
    return torch.where(X @ w >= 0, 1.0, -1.0).to(w.dtype)


def train(
    X: torch.Tensor, y: torch.Tensor, lr: float = 1.0, max_epochs: int = 100, w0: torch.Tensor | None = None
) -> History:
    """Go through the samples in order, update on each mistake, and stop after an epoch without one.

    X (n, d + 1), y (n,) of +1 and -1, start `w0` (d + 1,) or zero. The rule: w <- w + lr (y - yhat) x.
    """
    w = X.new_zeros(X.shape[1]) if w0 is None else w0.clone()
    weights = [w]
    samples: list[int] = []
    epochs: list[int] = []
    mistakes: list[int] = []
    while len(mistakes) < max_epochs and (not mistakes or mistakes[-1]):
        mistakes.append(0)
        start = 0
        while (i := _next_mistake(w, X, y, start)) is not None:
            w = w + lr * (y[i] - predict(w, X[i])) * X[i]
            weights.append(w)
            samples.append(i)
            epochs.append(len(mistakes) - 1)
            mistakes[-1] += 1
            start = i + 1
    return History(torch.stack(weights), samples, epochs, mistakes, settled=bool(mistakes) and mistakes[-1] == 0)


def _next_mistake(w: torch.Tensor, X: torch.Tensor, y: torch.Tensor, start: int) -> int | None:
    """The first sample from `start` on that w gets wrong. As w changes only on mistakes, all can be asked at once."""
    wrong = (predict(w, X[start:]) != y[start:]).nonzero()
    return start + int(wrong[0]) if len(wrong) else None


def margin(w: torch.Tensor, X: torch.Tensor, y: torch.Tensor) -> float:
    """min_i y_i w^T x_i / |w|: how far the nearest sample (n, d + 1) is on its right side; negative: a mistake."""
    return float((y * (X @ w)).min() / w.norm())


def novikoff_bound(X: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> float:
    """(R / margin)^2 with R = max |x_i|: no run from w = 0 makes more mistakes; infinite where w does not separate."""
    gamma = margin(w, X, y)
    return float(X.norm(dim=1).max() / gamma) ** 2 if gamma > 0 else float("inf")


def separable(X: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether some w has y_i w^T x_i > 0 for every sample (n, d + 1): exactly, by linear programming."""
    from scipy.optimize import linprog  # comes with scikit-learn

    A = -(y[:, None] * X).double().numpy()
    return linprog([0.0] * A.shape[1], A_ub=A, b_ub=[-1.0] * len(A), bounds=(None, None)).status == 0
