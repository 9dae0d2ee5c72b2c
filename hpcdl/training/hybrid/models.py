"""The models that a mesh trains, by name and size: layers in a list, how each is cut, their data and their loss.

A `Model` is the same on every rank. `dense` returns all layers; `split` returns this rank's part of each, still one per
layer, so a pipeline may split the list between any two.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.comm import Communicator
from hpcdl.data import Characters, corpus, digits
from hpcdl.nn.lenet import lenet5
from hpcdl.nn.transformer import transformer
from hpcdl.parallel import ChannelConv2d, ColumnLinear, FilterConv2d, Mesh, RowLinear
from hpcdl.parallel.sequence import positions
from hpcdl.parallel.shares import shares
from hpcdl.parallel.tensor import cross_entropy as vocabulary_cross_entropy
from hpcdl.training.hybrid.attention import split_decoder

NOTHING = -100  # the target of a padding row in a microbatch: neither its loss nor its gradient counts

Batch = tuple[torch.Tensor, torch.Tensor]
Cut = Callable[[nn.Module, Communicator], nn.Module]


class Model(ABC):
    """A network of `layers` layers with its data; `unit` names the samples, of `sequence` tokens each (0 for
    images)."""

    unit = "images"
    sequence = 0
    layers: int
    most: dict[str, int]  # by axis: the largest number of ranks that all have work
    why: dict[str, str]  # by axis: what is split

    @abstractmethod
    def dense(self) -> nn.Sequential:
        """Return all layers, with weights from torch's generator."""

    @abstractmethod
    def split(self, dense: nn.Sequential, mesh: Mesh) -> nn.Sequential:
        """Return this rank's part of every layer of `dense`."""

    @abstractmethod
    def boundaries(self, mesh: Mesh) -> list[tuple[int, ...]]:
        """Return the shape of one sample after each layer except the last, on this rank."""

    @cached_property
    @abstractmethod
    def data(self) -> Batch:
        """Return all training samples, (N, ...), and their targets."""

    def cut(self, batch: Batch, mesh: Mesh) -> Batch:
        """Return this rank's part of each sample."""
        return batch

    def loss(self, y: torch.Tensor, target: torch.Tensor, mesh: Mesh) -> torch.Tensor:
        """Return the sum of this part's losses divided by the number of rows `len(y)`, including rows without a
        target."""
        return cross_entropy(y, target, ignore_index=NOTHING, reduction="sum") / len(y)

    def said(self, dense: nn.Sequential) -> str:
        """Show what the trained network can do, in a few lines."""
        split = digits(size=self.data[0].shape[-1])
        x = split.x_held_out.to(next(dense.parameters()).dtype)
        with torch.no_grad():
            right = (dense(x).argmax(1) == split.y_held_out).double().mean().item()
        return f"held-out accuracy {100 * right:.1f} %"


class Chain(Model):
    """A model with layers that are split one by one: `cuts` says how, `widths` gives the features or channels after
    each."""

    cuts: Sequence[Cut]
    widths: Sequence[int]

    def split(self, dense: nn.Sequential, mesh: Mesh) -> nn.Sequential:
        return nn.Sequential(*(cut(layer, mesh.tensor) for cut, layer in zip(self.cuts, dense, strict=True)))

    def share(self, layer: int, mesh: Mesh) -> int:
        """Return this rank's features after a layer: all of them unless the layer leaves them split."""
        if self.cuts[layer] not in (by_columns, by_filters):
            return self.widths[layer]
        return shares(self.widths[layer], mesh.tensor.size)[mesh.part]


def _first(cut: Callable[[nn.Module], nn.Module], layer: nn.Module) -> nn.Module:
    """Return `layer` with its first weighted part split."""
    assert isinstance(layer, nn.Sequential)
    return nn.Sequential(*(cut(part) if list(part.parameters()) else part for part in layer))


def by_columns(layer: nn.Module, comm: Communicator) -> nn.Module:
    return _first(lambda part: ColumnLinear.of(part, comm), layer)  # type: ignore[arg-type]


def by_rows(layer: nn.Module, comm: Communicator) -> nn.Module:
    return _first(lambda part: RowLinear.of(part, comm), layer)  # type: ignore[arg-type]


def by_filters(layer: nn.Module, comm: Communicator) -> nn.Module:
    return _first(lambda part: FilterConv2d.of(part, comm), layer)  # type: ignore[arg-type]


def by_channels(layer: nn.Module, comm: Communicator) -> nn.Module:
    return _first(lambda part: ChannelConv2d.of(part, comm), layer)  # type: ignore[arg-type]


def whole(layer: nn.Module, comm: Communicator) -> nn.Module:
    return deepcopy(layer)


class DigitsMLP(Chain):
    """Linear layers with ReLU for images of 8 x 8 digits: columns and rows in turn, the last one whole."""

    def __init__(self, width: int, hidden: int):
        self.layers, self.widths = hidden + 1, [width] * hidden + [10]
        self.cuts = [*[by_columns, by_rows] * (hidden // 2), whole]
        self.most = {"tensor": width, "sequence": 1}
        self.why = {"tensor": f"{width} neurons a layer", "sequence": "no sequence of tokens"}

    def dense(self) -> nn.Sequential:
        sizes = list(pairwise([64, *self.widths]))
        hidden = [[nn.Linear(n, m), nn.ReLU()] for n, m in sizes[:-1]]
        hidden[0].insert(0, nn.Flatten())
        return nn.Sequential(*(nn.Sequential(*parts) for parts in hidden), nn.Sequential(nn.Linear(*sizes[-1])))

    def boundaries(self, mesh: Mesh) -> list[tuple[int, ...]]:
        return [(self.share(layer, mesh),) for layer in range(self.layers - 1)]

    @cached_property
    def data(self) -> Batch:
        split = digits()
        return split.x, split.y


class LeNet(Chain):
    """LeNet-5 for digits of 28 x 28: filters, then channels; columns, then rows; the last layer whole."""

    def __init__(self):
        self.layers, self.widths = 5, [6, 400, 120, 84, 10]
        self.cuts = [by_filters, by_channels, by_columns, by_rows, whole]
        self.most = {"tensor": 6, "sequence": 1}
        self.why = {"tensor": "6 filters in the first convolution", "sequence": "no sequence of tokens"}

    def dense(self) -> nn.Sequential:
        parts = list(lenet5())
        ends = [0, 3, 7, 9, 11, 12]
        return nn.Sequential(*(nn.Sequential(*parts[a:b]) for a, b in pairwise(ends)))

    def boundaries(self, mesh: Mesh) -> list[tuple[int, ...]]:
        return [(self.share(0, mesh), 14, 14), *((self.share(layer, mesh),) for layer in (1, 2, 3))]

    @cached_property
    def data(self) -> Batch:
        split = digits(size=28)
        return split.x, split.y


class GPT(Model):
    """A decoder that reads the course's corpus letter by letter: embedding, blocks, output."""

    unit = "texts"

    def __init__(self, sequence: int, hidden: int, heads: int, blocks: int):
        self.sequence, self.hidden, self.heads, self.blocks, self.layers = sequence, hidden, heads, blocks, blocks + 2
        self.most = {"tensor": heads, "sequence": sequence}
        self.why = {"tensor": f"{heads} heads of attention", "sequence": f"{sequence} tokens"}

    @cached_property
    def letters(self) -> Characters:
        """Return its vocabulary."""
        return Characters(corpus())

    def dense(self) -> nn.Sequential:
        return transformer(len(self.letters), self.sequence, self.hidden, self.heads, self.blocks)

    def split(self, dense: nn.Sequential, mesh: Mesh) -> nn.Sequential:
        return split_decoder(dense, mesh.tensor, mesh.sequence, self.sequence)

    def boundaries(self, mesh: Mesh) -> list[tuple[int, ...]]:
        return [(len(self._places(mesh)), self.hidden)] * (self.layers - 1)

    @cached_property
    def data(self) -> Batch:
        tokens = self.letters.encode(corpus())
        pieces = tokens[: (len(tokens) - 1) // self.sequence * self.sequence + 1].unfold(
            0, self.sequence + 1, self.sequence
        )
        return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()

    def cut(self, batch: Batch, mesh: Mesh) -> Batch:
        if mesh.sequence.size == 1:
            return batch
        places = self._places(mesh)
        return batch[0][:, places].contiguous(), batch[1][:, places].contiguous()

    def loss(self, y: torch.Tensor, target: torch.Tensor, mesh: Mesh) -> torch.Tensor:
        each = vocabulary_cross_entropy(
            y.flatten(0, 1), target.flatten(), len(self.letters), mesh.tensor, ignore_index=NOTHING
        )
        return each.sum() / (len(y) * self.sequence)

    def said(self, dense: nn.Sequential, start: str = "The ", more: int = 60) -> str:
        """Return `more` letters after `start`, each drawn from the network's probabilities with a separate
        generator."""
        generator = torch.Generator().manual_seed(0)
        tokens = self.letters.encode(start)
        for _ in range(more):
            with torch.no_grad():
                logits = dense(tokens[-self.sequence :][None])[0, -1]
            tokens = torch.cat([tokens, torch.multinomial(logits.float().softmax(0), 1, generator=generator)])
        return f"it writes: {self.letters.decode(tokens)!r}"

    def _places(self, mesh: Mesh) -> torch.Tensor:
        return positions("contiguous", self.sequence, mesh.sequence.size, mesh.position)


MODELS: dict[str, dict[str, Callable[[], Model]]] = {  # names as in `configuration.SIZES`
    "mlp": {
        "tiny": lambda: DigitsMLP(32, 8),
        "small": lambda: DigitsMLP(256, 8),
        "medium": lambda: DigitsMLP(1024, 16),
    },
    "lenet": {"lenet5": LeNet},
    "gpt": {
        "tiny": lambda: GPT(16, 32, 8, 6),
        "small": lambda: GPT(64, 64, 8, 6),
        "medium": lambda: GPT(128, 256, 8, 14),
        "large": lambda: GPT(256, 512, 16, 30),
    },
}


def build(model: str, size: str = "") -> Model:
    """Return the model of this name and size; an empty size means the first."""
    sizes = MODELS[model]
    return sizes[size or next(iter(sizes))]()
