"""The same training on one machine in float64, with torch's autograd and convolution."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from hpcdl.training.own_stack.lent import bf16_round_bits, random16


def logits(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Compute logits (n, 10) of images (n, 1, 8, 8) by two convolutions with ReLU and a linear layer."""
    w1, w2, w3, b3 = weights
    hidden = functional.conv2d(functional.conv2d(x, w1).relu(), w2).relu()
    return hidden.flatten(1) @ w3 + b3


def serial(
    weights: Sequence[Tensor], batches: Iterable[tuple[Tensor, Tensor]], lr: float, beta: float = 0.9
) -> list[Tensor]:
    """Return the weights, float64, after a step on each batch (x, y).

    Step t rounds its new weights to bfloat16 with noise from seeds 4t to 4t + 3, like the ranks.
    """
    weights = [w.double() for w in weights]
    velocities = [torch.zeros_like(w) for w in weights]
    for t, (x, y) in enumerate(batches):
        leaves = [w.clone().requires_grad_() for w in weights]
        loss = functional.cross_entropy(logits(x.double(), leaves), y)
        for i, g in enumerate(torch.autograd.grad(loss, leaves)):
            velocities[i] = beta * velocities[i] + g
            new = (weights[i] - lr * velocities[i]).float()
            noise = random16(len(weights) * t + i, new.numel()).view_as(new)
            weights[i] = bf16_round_bits(new, noise).double()
    return weights
