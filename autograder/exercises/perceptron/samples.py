"""Samples, separable sets and the four corners of XOR, for the checks of this lab.

Samples are multiples of 1/8 and learning rates powers of two, so that float32 adds them without rounding: an answer may
add in any order and still makes exactly the same updates.
"""

import torch

from hpcdl.nn import perceptron as oracle

XOR = torch.tensor([[1.0, -1.0, -1.0], [1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [1.0, 1.0, 1.0]])
XOR_LABELS = torch.tensor([-1.0, 1.0, 1.0, -1.0])


def samples(n: int, d: int, rng: torch.Generator, reach: int = 16) -> torch.Tensor:
    """(n, d + 1): x_0 = 1, then multiples of 1/8 from -reach/8 to reach/8."""
    return oracle.with_bias(torch.randint(-reach, reach + 1, (n, d), generator=rng) / 8)


def separable_set(n: int, d: int, rng: torch.Generator, gap: float = 0.25):
    """Samples (n, d + 1), their labels (n,), and a w that separates them, none nearer to its cut than `gap` in z."""
    w = samples(1, d, rng).squeeze(0) + 1 / 64  # so that no weight is 0, and |w| is not 1
    w[0] = 0.5
    X = samples(40 * n, d, rng)
    X = X[(X @ w).abs() >= gap][:n]
    return X, oracle.predict(w, X), w
