"""A multi-layer perceptron and the four equations of backpropagation, in the letters of the lectures.

Layers are numbered 1 (the input) to L. `weights` and `biases` are lists over the layers 2 to L: `weights[i]` is
W^(i+2) of shape (n_out, n_in), whose entry [j, k] leads from neuron k to neuron j, and `biases[i]` is b^(i+2) of shape
(n_out,). A sample is a vector (n,), a batch holds one sample per row (N, n): `a @ W.T + b` serves both.

    z^l = W^l a^(l-1) + b^l        a^l = sigma(z^l)                        (forward)
    delta^L = grad_a C * sigma'(z^L)                                       (output error)
    delta^l = ((W^(l+1))^T delta^(l+1)) * sigma'(z^l)                      (error, one layer back)
    dC/dW^l = delta^l (a^(l-1))^T        dC/db^l = delta^l                 (gradients)

Source: Rumelhart, Hinton and Williams, "Learning representations by back-propagating errors" (Nature, 1986).
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

Tensors = list[torch.Tensor]  # one per layer


class Activation(NamedTuple):
    """A function of z, elementwise, and its derivative, also a function of z."""

    f: Callable[[torch.Tensor], torch.Tensor]
    prime: Callable[[torch.Tensor], torch.Tensor]


def sigma(z: torch.Tensor) -> torch.Tensor:
    """Return the logistic function 1 / (1 + e^-z), elementwise."""
    return torch.sigmoid(z)


def sigma_prime(z: torch.Tensor) -> torch.Tensor:
    """Return the derivative sigma(z) (1 - sigma(z)), elementwise; at most 1/4."""
    return sigma(z) * (1 - sigma(z))


def relu_prime(z: torch.Tensor) -> torch.Tensor:
    """Return the derivative of max(0, z): 1 where z > 0, else 0, also at z = 0."""
    return (z > 0).to(z.dtype)


SIGMOID = Activation(sigma, sigma_prime)
RELU = Activation(torch.relu, relu_prime)


def initial(
    widths: Sequence[int], generator: torch.Generator, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> tuple[Tensors, Tensors]:
    """Weights for layers of these `widths`, normal with deviation scale / sqrt(n_in), and biases of zero."""
    weights = [
        torch.randn(n_out, n_in, generator=generator, dtype=dtype) * (scale / n_in**0.5)
        for n_in, n_out in itertools.pairwise(widths)
    ]
    return weights, [torch.zeros(n_out, dtype=dtype) for n_out in widths[1:]]


def feedforward(
    weights: Tensors, biases: Tensors, x: torch.Tensor, activation: Activation = SIGMOID
) -> tuple[Tensors, Tensors]:
    """`(zs, activations)` for a sample (n,) or a batch (N, n): z of layers 2 to L, a of layers 1 to L."""
    zs: Tensors = []
    activations = [x]
    for W, b in zip(weights, biases, strict=True):
        zs.append(activations[-1] @ W.T + b)
        activations.append(activation.f(zs[-1]))
    return zs, activations


def cost(a: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """C = 1/2 |y - a|^2 of a sample, or its mean over the rows of a batch."""
    return 0.5 * ((y - a) ** 2).sum(dim=-1).mean()


def errors(
    weights: Tensors, zs: Tensors, a: torch.Tensor, y: torch.Tensor, activation: Activation = SIGMOID
) -> Tensors:
    """`[delta^2, ..., delta^L]`, each of the shape of its z; the cost is 1/2 |y - a|^2 of each sample."""
    deltas = [(a - y) * activation.prime(zs[-1])]
    for W, z in zip(reversed(weights[1:]), reversed(zs[:-1]), strict=True):
        deltas.insert(0, (deltas[0] @ W) * activation.prime(z))
    return deltas


def backprop(
    weights: Tensors, biases: Tensors, X: torch.Tensor, Y: torch.Tensor, activation: Activation = SIGMOID
) -> tuple[Tensors, Tensors]:
    """`(weight_grads, bias_grads)` of the mean cost over a batch X (N, n_1), Y (N, n_L): shapes as the parameters.

    A sample X (n_1,), Y (n_L,) is a batch of one.
    """
    X, Y = torch.atleast_2d(X), torch.atleast_2d(Y)
    zs, activations = feedforward(weights, biases, X, activation)
    deltas = errors(weights, zs, activations[-1], Y, activation)
    weight_grads = [delta.T @ a / len(X) for delta, a in zip(deltas, activations[:-1], strict=True)]
    return weight_grads, [delta.mean(dim=0) for delta in deltas]
