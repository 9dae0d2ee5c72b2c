"""The samples in an epoch's last, shorter batch, from seed to seed: a list that is turned gives few sets of them."""

from collections.abc import Callable

import torch

from autograder import checks
from autograder.exercises.backprop.networks import network
from autograder.exercises.drawing import normal, whole_number

LR = 1e-6  # so small that each gradient is that of the network before training
SEEDS = 40  # of n <= 23 samples, C(n, rest) >= 55 sets: as few as n of them come by chance in less than 1e-12


def last_batches_vary(ask: Callable, rng) -> None:
    """Check the last batches of an epoch for many seeds; `ask(network, data, lr, size, epochs, generator)` trains."""
    size = whole_number(rng, 3, 6)
    rest = whole_number(rng, 2, size - 1)
    n = 3 * size + rest
    weights, biases = network(rng, (n, 3))
    X = normal(rng, n, n)
    logits = X @ weights[0].T + biases[0]
    labels = logits.argmin(dim=1)  # far from right, so that each gradient is large
    slopes = logits.softmax(dim=1) - torch.nn.functional.one_hot(labels, 3)

    def last_batch(seed: int) -> tuple[int, ...]:
        generator = torch.Generator().manual_seed(seed)
        got = ask((weights, biases), (X, labels), LR, size, 1, generator)
        moved = torch.linalg.solve(X.T, (got[0][0] - weights[0]).T) / -LR  # row i: its slopes and what it counts
        counts = (moved * slopes).sum(dim=1) / slopes.square().sum(dim=1)
        others = (counts - 1 / size).abs() > (1 / rest - 1 / size) / 2  # 1/rest, or 0 where the last batch is missing
        return tuple(others.nonzero()[:, 0].tolist())

    sets = {last_batch(seed) for seed in range(SEEDS)}
    uneven = next((rows for rows in sets if len(rows) != rest), None)
    checks.that(
        uneven is None,
        f"{n} samples in batches of {size}: all samples but the last {rest} count 1/{size} in the mean of their batch.",
        got=f"{n - len(uneven or ())} samples count 1/{size}",
        expected=f"{n - rest} samples",
    )
    checks.that(
        len(sets) > n,
        f"{n} samples in batches of {size}: for {SEEDS} seeds of the generator the last batch is one of {len(sets)} "
        "sets only. A list that is turned keeps neighbours together: take a random permutation of all samples.",
        expected=f"more than {n} sets",
    )
