"""What this lab's checks compare with: networks run by torch's own layers, and their gradients by autograd."""

import torch
from torch.nn import functional


def run(weights, biases, x):
    """`(zs, activations)` by torch's own linear layers."""
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        zs.append(functional.linear(activations[-1], W, b))
        activations.append(torch.sigmoid(zs[-1]))
    return zs, activations


def autograd(weights, biases, X, Y):
    """By autograd: `(dC/dW, dC/db, dC/dz)`, a list each, of the mean over rows of 1/2 |y - a|^2."""
    parameters = [p.double().clone().requires_grad_() for p in (*weights, *biases)]
    zs, activations = run(parameters[: len(weights)], parameters[len(weights) :], X.double())
    C = 0.5 * (Y.double() - activations[-1]).pow(2).sum(dim=-1).mean()
    grads = [g.to(X.dtype) for g in torch.autograd.grad(C, [*parameters, *zs])]
    return grads[: len(weights)], grads[len(weights) : 2 * len(weights)], grads[2 * len(weights) :]


def slope(z: torch.Tensor) -> torch.Tensor:
    """σ'(z), by autograd."""
    z = z.clone().requires_grad_()
    return torch.autograd.grad(torch.sigmoid(z).sum(), z)[0]


def loss_oracle(logits, labels):
    logits = logits.double().clone().requires_grad_()
    loss = functional.cross_entropy(logits, labels)
    return loss.item(), torch.autograd.grad(loss, logits)[0]
