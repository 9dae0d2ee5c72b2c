"""Training in low precision: stored numbers have few bits, sums have 32.

Between two layers, and between two steps, every number belongs to a small format: the weights, the activations that
layers with weights put out, the gradients of those activations and of the weights. Products and sums inside a layer and
inside a step run in float32, and their results are rounded, to nearest or at random:

    a^l = R(layer(a^(l-1)))        da^l = R(dL/da^l)        g = R(mean over the batch of dL_n/dw)
    v <- momentum v + g            w <- R(w - lr v)

The gradients da belong to each image's own loss: divided by the batch size, which the mean does later, they would fall
below the gap of a fixed-point format. ReLU and max-pooling choose among numbers of the format and need no rounding.
Each rounding takes the next stretch of one seed's random bits.

Source: Gupta, Agrawal, Gopalakrishnan and Narayanan 2015, "Deep learning with limited numerical precision".
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hpcdl.data import Split
from hpcdl.first_derivative import first_only
from hpcdl.nn.lenet import lenet5
from hpcdl.numerics.rounding import Format, round_nearest, stochastic_round
from hpcdl.numerics.rounding.threads import one_thread

MODES = ("nearest", "stochastic")


class Precision(NamedTuple):
    """The formats of weights, activations and gradients, where None leaves float32, and how to round to them."""

    weights: Format | None = None
    activations: Format | None = None
    gradients: Format | None = None
    mode: str = "stochastic"

    @classmethod
    def all_in(cls, fmt: Format, mode: str = "stochastic") -> "Precision":
        """One format for everything."""
        return cls(fmt, fmt, fmt, mode)


class Epoch(NamedTuple):
    """The result of an epoch: its number, the mean loss of its images in order, and the accuracy on held-out images in
    [0, 1].

    `moved` is the share of weights that an update changed, the mean over the updates of the epoch.
    """

    number: int
    loss: float
    accuracy: float
    moved: float


class Rounder:
    """Rounds one tensor after another in a mode; each takes the next stretch of the random bits of `seed`."""

    def __init__(self, mode: str, seed: int):
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}; it is one of {', '.join(MODES)}")
        self.mode, self.seed, self.offset = mode, seed, 0

    def __call__(self, x: Tensor, fmt: Format | None) -> Tensor:
        """Round `x` to `fmt`; return it unchanged if that is None."""
        if fmt is None:
            return x
        if self.mode == "nearest":
            return round_nearest(x, fmt)
        start = self.offset
        self.offset += x.numel()
        return stochastic_round(x, fmt, seed=self.seed, offset=start)


class RoundBetweenLayers(torch.autograd.Function):
    """Rounds activations on the way forward and their gradients on the way back."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, precision: Precision, rounder: Rounder) -> Tensor:
        ctx.gradients, ctx.rounder = precision.gradients, rounder
        return rounder(a, precision.activations)

    @staticmethod
    @first_only("rounding between layers")
    def backward(ctx: Any, da: Tensor) -> tuple[Tensor, None, None]:
        return ctx.rounder(da, ctx.gradients), None, None


def forward(network: nn.Sequential, x: Tensor, precision: Precision, rounder: Rounder) -> Tensor:
    """Return the network's logits for images `x`, rounded after every layer that has weights."""
    a = rounder(x, precision.activations)
    for layer in network:
        a = layer(a)
        if any(True for _ in layer.parameters()):
            a = RoundBetweenLayers.apply(a, precision, rounder)
    return a


def train(
    network: nn.Sequential,
    data: Split,
    precision: Precision,
    *,
    lr: float = 0.05,
    momentum: float = 0.0,
    epochs: int = 10,
    batch: int = 32,
    seed: int = 0,
) -> Iterator[Epoch]:
    """Train `network` in place by SGD with momentum, and yield its `Epoch` after each epoch.

    `seed` decides the order of the images and the random bits; the same seed gives the same weights to the last bit, on
    any number of threads: layers run on one, since the order of a sum is its last bit. Held-out images are judged with
    activations rounded to nearest. Raises ValueError for an unknown mode or a batch below 1.
    """
    if batch < 1:
        raise ValueError(f"batch is {batch}; it has 1 image or more")
    rounder, order = Rounder(precision.mode, seed), torch.Generator().manual_seed(seed)
    w = flat_weights(network)
    w.copy_(rounder(w, precision.weights))
    v = torch.zeros_like(w)
    for number in range(1, epochs + 1):
        losses, moved = [], []
        for images in torch.randperm(len(data.y), generator=order).split(batch):
            with one_thread():
                loss, g = gradient(network, data.x[images], data.y[images], precision, rounder)
                v.mul_(momentum).add_(g)
                updated = rounder(w - lr * v, precision.weights)
                moved.append((updated != w).float().mean())
                w.copy_(updated)
            losses.append(loss)
        mean = sum(losses) / len(data.y)
        yield Epoch(number, mean, accuracy(network, data, precision), float(torch.stack(moved).mean()))


def gradient(
    network: nn.Sequential, x: Tensor, y: Tensor, precision: Precision, rounder: Rounder
) -> tuple[float, Tensor]:
    """Return the summed loss of a batch, and the rounded gradient of its mean with respect to all weights, flat."""
    network.zero_grad()
    loss = cross_entropy(forward(network, x, precision, rounder), y, reduction="sum")
    loss.backward()
    grads = [p.grad.reshape(-1) for p in network.parameters() if p.grad is not None]  # all have one now
    g = torch.cat(grads) / len(y)
    return loss.item(), rounder(g, precision.gradients)


@torch.no_grad()
def accuracy(network: nn.Sequential, data: Split, precision: Precision) -> float:
    """Return the share of held-out images that the network classifies correctly."""
    with one_thread():
        logits = forward(network, data.x_held_out, precision, Rounder("nearest", seed=0))
    return (logits.argmax(dim=1) == data.y_held_out).float().mean().item()


def flat_weights(network: nn.Module) -> Tensor:
    """Return all weights of a network in one flat tensor; the parameters become views of it."""
    parameters = list(network.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        p.data = part.view_as(p)
    return flat


def mlp(*widths: int) -> nn.Sequential:
    """Return a multi-layer perceptron of these widths with ReLUs: `mlp(784, 128, 10)` for 28 x 28 images."""
    layers = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


def fresh(build: Callable[[], nn.Sequential], seed: int) -> nn.Sequential:
    """Return a new network with torch's own initial weights, drawn from `seed`; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


NETWORKS = {"lenet": lenet5, "mlp": lambda: mlp(784, 128, 10)}
