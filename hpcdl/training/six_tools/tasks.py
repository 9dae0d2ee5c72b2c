"""The tasks: networks in float64, the same on all ranks, with their batches and losses."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from hpcdl.data import Split, digits
from hpcdl.nn.decoder import Decoder
from hpcdl.nn.lenet import lenet5

LAYERS, ROWS, MIXED_IN = 4, 64, 1 / 16


class Task(NamedTuple):
    """`network()` makes the model, `batch(g)` draws ROWS inputs with targets, `loss(outputs, targets)` is a mean."""

    network: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]


# -- LeNet-5 on the digits --------------------------------------------------------------------------------------------


@cache
def _digits() -> Split:
    return digits(size=28)


def _images(g: torch.Generator) -> tuple[Tensor, Tensor]:
    chosen = torch.randperm(len(_digits().y), generator=g)[:ROWS]
    return _digits().x[chosen].double(), _digits().y[chosen]


LENET = Task(lambda: _seeded(lenet5), _images, cross_entropy)

# -- a small transformer that learns to count -------------------------------------------------------------------------

VOCABULARY, TOKENS = 32, 16


def _sentences(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences that each count on from a random number; a token's target is the next token."""
    first = torch.randint(VOCABULARY, (ROWS, 1), generator=g)
    numbers = (first + torch.arange(TOKENS + 1)) % VOCABULARY
    return numbers[:, :-1], numbers[:, 1:]


def _of_tokens(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


TRANSFORMER = Task(lambda: _seeded(lambda: Decoder(VOCABULARY, 64, heads=4, blocks=2)), _sentences, _of_tokens)

TASKS = {"LeNet-5": LENET, "transformer": TRANSFORMER}

# -- layers as wide as you like ---------------------------------------------------------------------------------------


def wide(width: int) -> Task:
    """Return pairs of linear layers with tanh between them, 4 width^2 weights: messages cost more than calls."""

    def rows(g: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.randn(ROWS, width, generator=g, dtype=torch.float64)
        return x, x.flip(1) * MIXED_IN

    return Task(lambda: _wide(width), rows, mse_loss)


def _wide(width: int) -> nn.Sequential:
    g = torch.Generator().manual_seed(0)
    layers = [nn.Linear(width, width, bias=False, dtype=torch.float64) for _ in range(LAYERS)]
    for layer in layers:
        layer.weight.data = torch.randn(width, width, generator=g, dtype=torch.float64) / width**0.5
    return nn.Sequential(*[part for layer in layers for part in (layer, nn.Tanh())])


def _seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()
