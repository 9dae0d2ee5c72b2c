"""The work of a model: operations, bytes and parameters of convolutional networks and transformers.

A network is a list of layers (`hpcdl.nn.networks.Layer`); a `Transformer` gives its own. Operations come from matrix
products and convolutions, two per multiply-accumulate, like torch's FlopCounterMode; normalizations, activations and
dropout count only as bytes.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite
from numbers import Integral, Real
from typing import NamedTuple

from hpcdl.cost.roofline import Device, seconds
from hpcdl.nn.networks import Layer

# What the backward pass recomputes: nothing; the core of attention, whose scores fill most of the memory (Korthikanti
# et al. 2022); each layer of a transformer.
RECOMPUTE = ("nothing", "selective", "full")


class Transformer(NamedTuple):
    """A decoder: layers, hidden size h, sequence length s, vocabulary V, heads; embedding and output share weights.

    Newer models have `feedforward` wide elements instead of 4 h, three feed-forward matrices if `gated`, fewer heads
    (`kv_heads`) for keys and values, `untied` output weights, and `experts`; each token uses `active` of them.
    """

    layers: int
    hidden: int
    sequence: int
    vocabulary: int
    heads: int = 1
    feedforward: int | None = None
    gated: bool = False
    kv_heads: int | None = None
    untied: bool = False
    experts: int = 1
    active: int = 1
    causal: bool = True

    def check(self) -> None:
        """Raises ValueError for sizes that no decoder has."""
        for name in ("layers", "hidden", "sequence", "vocabulary", "heads", "experts", "active"):
            check_number(name, getattr(self, name), 1, whole=True)
        for name in ("feedforward", "kv_heads"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, whole=True)
        if self.hidden % self.heads or self.heads % (self.kv_heads or 1):
            raise ValueError(
                f"heads is {self.heads}; it divides hidden, which is {self.hidden}, and kv_heads divides it, which is "
                f"{self.kv_heads}"
            )
        if self.active > self.experts:
            raise ValueError(f"active is {self.active}; a token uses some of the experts, which are {self.experts}")

    @property
    def wide(self) -> int:
        """Return each token's elements between the feed-forward matrices: 4 h unless `feedforward` is given."""
        return self.feedforward or 4 * self.hidden

    @property
    def keys(self) -> int:
        """Return the elements of each token's keys: h, unless keys have fewer heads."""
        return self.hidden * (self.kv_heads or self.heads) // self.heads

    @property
    def parameters(self) -> int:
        """Return the number of parameters: 12 h^2 + 13 h per layer, the embedding of words and positions, and the last
        normalization."""
        return self.layers * self.layer_weights(self.experts) + self._outside

    @property
    def used(self) -> int:
        """Return the number of parameters that a token uses: all, unless there are experts."""
        return self.layers * self.layer_weights(self.active) + self._outside

    @property
    def _outside(self) -> int:
        return (self.vocabulary * (1 + self.untied) + self.sequence + 2) * self.hidden

    def layer_weights(self, experts: int) -> int:
        """Return the weights of a layer: 2 h^2 + 2 h k, the experts' matrices, and the vectors."""
        h, wide = self.hidden, self.wide
        matrices = 2 * h * h + 2 * h * self.keys + experts * (2 + self.gated) * h * wide
        return matrices + (self.experts * h if self.experts > 1 else 0) + 7 * h + 2 * self.keys + wide

    def flops(self, batch: int, recompute: str = "full") -> float:
        """Return the operations of one iteration: 3 (24 b s h^2 + 4 b s^2 h) per layer, and 6 b s h V.

        Recomputing everything adds 24 b s h^2 + 4 b s^2 h per layer, the core of attention 4 b s^2 h.
        """
        head = 6.0 * batch * self.sequence * self.hidden * self.vocabulary
        layer = 3 * self.layer_flops(batch) + self.recomputed_flops(batch, recompute)
        return self.layers * layer + head

    def layer_flops(self, batch: int) -> float:
        """Return the operations of one layer's forward pass: 24 b s h^2 + 4 b s^2 h."""
        return 2.0 * batch * self.sequence * self._used_matrices + self._core_flops(batch)

    def recomputed_flops(self, batch: int, recompute: str) -> float:
        """Return the operations of one layer that are recomputed; raise ValueError for a name not in `RECOMPUTE`."""
        check_recompute(recompute)
        return {"nothing": 0.0, "selective": self._core_flops(batch), "full": self.layer_flops(batch)}[recompute]

    @property
    def _used_matrices(self) -> int:
        h = self.hidden
        return 2 * h * h + 2 * h * self.keys + self.active * (2 + self.gated) * h * self.wide

    def _core_flops(self, batch: int) -> float:
        return 4.0 * batch * self.sequence**2 * self.hidden

    def table(self) -> list[Layer]:
        """List the embedding, the layers, and the output (which uses the embedding's weights), per sequence."""
        return list(_table(self))

    def _layers(self) -> list[Layer]:
        h, s, words = self.hidden, self.sequence, self.vocabulary
        macs = s * self._used_matrices + 2 * s**2 * h
        block = Layer("block", self.layer_weights(self.experts), macs, s * h, s * h)
        return [
            Layer("embedding", (words + s) * h, 0, 0, s * h),
            *(block._replace(name=f"block{i + 1}") for i in range(self.layers)),
            Layer("output", (2 + self.untied * words) * h, s * h * words, s * h, s * words),
        ]


@lru_cache(256)
def _table(model: Transformer) -> tuple[Layer, ...]:
    return tuple(model._layers())


def check_number(name: str, value: float, least: float = 0.0, *, whole: bool = False, above: bool = False) -> None:
    """Raises ValueError for what is no finite number from `least` on (or `above` it), or is not `whole`."""
    number = isinstance(value, Integral if whole else Real) and isfinite(value)
    if not number or value < least or (above and value == least):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name} is {value!r}; it is {kind} {f'above {least:g}' if above else f'from {least:g}'}")


def check_numbers(least: float = 0.0, *, whole: bool = False, above: bool = False, **numbers: float) -> None:
    """Check each of `numbers`, by name, as `check_number` does."""
    for name, value in numbers.items():
        check_number(name, value, least, whole=whole, above=above)


def check_recompute(recompute: str) -> None:
    """Raise ValueError for a name that is not in `RECOMPUTE`."""
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute is {recompute!r}; what is computed again is one of {', '.join(RECOMPUTE)}")


def table(model: Sequence[Layer] | Transformer) -> list[Layer]:
    """Return the layers of a model, first to last; raise TypeError for anything else."""
    if isinstance(model, Transformer):
        return model.table()
    layers: list = list(model) if isinstance(model, Sequence) else [model]
    if not layers or not all(isinstance(layer, Layer) for layer in layers):
        raise TypeError(
            f"the model is {model!r:.80}; it is a list of hpcdl.nn.networks.Layer, such as resnet50(), or a "
            f"hpcdl.cost.work.Transformer"
        )
    return layers


class Work(NamedTuple):
    """Floating-point operations (two per MAC), the bytes that must be read and written at least once, and
    parameters."""

    flops: float
    nbytes: float
    parameters: int = 0

    @property
    def intensity(self) -> float:
        """Return the operations per byte."""
        return self.flops / self.nbytes


def forward(layer: Layer, batch: int, itemsize: int = 4) -> Work:
    """Return the work of a layer's forward pass for `batch` images: inputs and weights read once, outputs written
    once."""
    elements = batch * (layer.inputs + layer.outputs) + layer.weights
    return Work(2.0 * batch * layer.macs, float(elements * itemsize), layer.weights)


def backward(layer: Layer, batch: int, itemsize: int = 4, *, first: bool = False) -> Work:
    """Return the work of the backward pass: gradients of the weights, and of the inputs unless the layer is the
    network's `first`.

    Each takes as many operations as the forward pass. The output's gradient is read twice, inputs and weights once
    each; the gradients of inputs and weights are written.
    """
    weights = Work(2.0 * batch * layer.macs, float(batch * (layer.inputs + layer.outputs) + layer.weights))
    passes = 1 if first else 2
    return Work(passes * weights.flops, passes * weights.nbytes * itemsize, layer.weights)


def training_flops(model: Sequence[Layer] | Transformer, batch: int, recompute: str = "nothing") -> float:
    """Return the operations of one iteration: forward, backward, and recomputation.

    This is three times the forward pass, minus the unneeded input gradient of the first layer; four times with
    `recompute` "full". "selective" is only for transformers. Raises ValueError for any other name.
    """
    if isinstance(model, Transformer):
        return model.flops(batch, recompute)
    check_recompute(recompute)
    if recompute == "selective":
        raise ValueError("recompute is 'selective', which is for the attention of a Transformer; say nothing or full")
    layers = table(model)
    once = sum(forward(layer, batch).flops for layer in layers)
    gradients = sum(backward(layer, batch, first=not i).flops for i, layer in enumerate(layers))
    return once * (2 if recompute == "full" else 1) + gradients


def forward_seconds(model: Sequence[Layer] | Transformer, batch: int, device: Device, itemsize: int = 4) -> float:
    """Return the least time of a forward pass, each layer at its roofline, without normalization and activations."""
    return sum(seconds(*forward(layer, batch, itemsize)[:2], device) for layer in table(model))


def backward_seconds(model: Sequence[Layer] | Transformer, batch: int, device: Device, itemsize: int = 4) -> float:
    """Return the least time of a backward pass, each layer at its roofline."""
    layers = table(model)
    return sum(seconds(*backward(layer, batch, itemsize, first=not i)[:2], device) for i, layer in enumerate(layers))
