"""One machine's step on all ranks' images in float64, with torch's autograd, and what known mistakes make of it."""

import functools

import numpy as np
import torch
from torch.nn import functional

from autograder.exercises.own_stack.rounding import mix
from autograder.exercises.stochastic_rounding.codes import code, from_code

BETA = 0.9
SHAPES = ((8, 1, 3, 3), (16, 8, 3, 3), (256, 10), (10,))


def weights_of(rng) -> list[torch.Tensor]:
    """bfloat16 numbers in float32, none of them zero."""
    sizes = (0.4, 0.15, 0.08, 0.1)
    drawn = [torch.randn(shape, generator=rng) * size for shape, size in zip(SHAPES, sizes, strict=True)]
    return [w.bfloat16().float() for w in drawn]


def images_for(sizes: tuple[int, ...], steps: int, rng) -> list[list[tuple]]:
    """By rank and step images x (n_r, 1, 8, 8) and labels."""
    return [
        [(torch.rand(n, 1, 8, 8, generator=rng), torch.randint(10, (n,), generator=rng)) for _ in range(steps)]
        for n in sizes
    ]


def logits_of(weights, x):
    w1, w2, w3, b3 = weights
    return functional.conv2d(functional.conv2d(x, w1).relu(), w2).relu().flatten(1) @ w3 + b3


def loss_of(weights, x, y, reduction: str = "mean"):
    return functional.cross_entropy(logits_of(weights, x), y, reduction=reduction)


def gradients(weights, parts, mean=True) -> list[torch.Tensor]:
    """Of the mean over all samples of the parts; or, without `mean`, the mean of the parts' means."""
    leaves = [w.double().requires_grad_() for w in weights]
    if mean:
        x, y = (torch.cat(both) for both in zip(*parts, strict=True))
        loss = loss_of(leaves, x.double(), y)
    else:
        loss = torch.stack([loss_of(leaves, x.double(), y) for x, y in parts]).mean()
    return list(torch.autograd.grad(loss, leaves))


@functools.lru_cache(64)
def noise_of(seed: int, n: int) -> torch.Tensor:
    """Return the noise of the seed, all n numbers at once."""
    return torch.from_numpy((mix(np.arange(n, dtype=np.uint64) ^ np.uint64(mix(seed))) >> 16).astype(np.int64))


def rounded(w: torch.Tensor, seed: int) -> torch.Tensor:
    """To bfloat16 with the noise of the seed, by integers."""
    up = (code(w.float()) + noise_of(seed, w.numel()).view(w.shape)) >> 16
    return from_code(up).float()


def stepped(weights, velocities, grads, lr, seed=None, beta=BETA) -> tuple[list, list]:
    """Weights and velocities after a step; without a `seed` nothing is rounded."""
    velocities = [beta * v.double() + g for v, g in zip(velocities, grads, strict=True)]
    weights = [w.double() - lr * v for w, v in zip(weights, velocities, strict=True)]
    if seed is not None:
        weights = [rounded(w, seed + i) for i, w in enumerate(weights)]
    return weights, velocities
