"""How much there is to do: operations, bytes and parameters of convolution networks and transformers.

A network is a list of layers (`hpcdl.nn.networks.Layer`); a `Transformer` gives its own. Operations are those of
matrix products and convolutions, two per multiply-accumulate, as torch's FlopCounterMode counts them; normalizations,
activations and dropout count as bytes only.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hpcdl.cost.roofline import Device, seconds
from hpcdl.nn.networks import Layer

# What is computed again in the backward pass, instead of kept: nothing; the core of attention, whose scores fill most
# of the memory (Korthikanti et al. 2022); each layer of a transformer.
RECOMPUTE = ("nothing", "selective", "full")


class Transformer(NamedTuple):
    """A decoder: layers, hidden size h, sequence length s, vocabulary V, heads; embedding and output share weights."""

    layers: int
    hidden: int
    sequence: int
    vocabulary: int
    heads: int = 1

    @property
    def parameters(self) -> int:
        """12 h^2 + 13 h for each layer, the embedding of words and positions, and the last normalization."""
        h = self.hidden
        return self.layers * (12 * h + 13) * h + (self.vocabulary + self.sequence + 2) * h

    def flops(self, batch: int, recompute: str = "full") -> float:
        """Operations of one iteration: 3 (24 b s h^2 + 4 b s^2 h) per layer, and 6 b s h V.

        Recomputing everything adds 24 b s h^2 + 4 b s^2 h per layer, the core of attention 4 b s^2 h.
        """
        head = 6.0 * batch * self.sequence * self.hidden * self.vocabulary
        layer = 3 * self.layer_flops(batch) + self.recomputed_flops(batch, recompute)
        return self.layers * layer + head

    def layer_flops(self, batch: int) -> float:
        """Operations of one layer's forward pass: 24 b s h^2 + 4 b s^2 h."""
        return 24.0 * batch * self.sequence * self.hidden**2 + self._core_flops(batch)

    def recomputed_flops(self, batch: int, recompute: str) -> float:
        """Operations of one layer that are done a second time; raises ValueError for a name not in `RECOMPUTE`."""
        check_recompute(recompute)
        return {"nothing": 0.0, "selective": self._core_flops(batch), "full": self.layer_flops(batch)}[recompute]

    def _core_flops(self, batch: int) -> float:
        return 4.0 * batch * self.sequence**2 * self.hidden

    def table(self) -> list[Layer]:
        """The embedding, the layers, and the output (which uses the embedding's weights); per sequence."""
        h, s = self.hidden, self.sequence
        block = Layer("block", (12 * h + 13) * h, 12 * s * h**2 + 2 * s**2 * h, s * h, s * h)
        return [
            Layer("embedding", (self.vocabulary + s) * h, 0, 0, s * h),
            *(block._replace(name=f"block{i + 1}") for i in range(self.layers)),
            Layer("output", 2 * h, s * h * self.vocabulary, s * h, s * self.vocabulary),
        ]


def check_recompute(recompute: str) -> None:
    """Raises ValueError for a name that is not in `RECOMPUTE`."""
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute is {recompute!r}; what is computed again is one of {', '.join(RECOMPUTE)}")


def table(model: Sequence[Layer] | Transformer) -> list[Layer]:
    """The layers of a model, first to last; raises TypeError for what is neither."""
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
    """Floating-point operations (two per MAC), the bytes that must move once each way, and parameters."""

    flops: float
    nbytes: float
    parameters: int = 0

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.nbytes


def forward(layer: Layer, batch: int, itemsize: int = 4) -> Work:
    """The forward pass of a layer for `batch` images: inputs and weights read once, outputs written once."""
    elements = batch * (layer.inputs + layer.outputs) + layer.weights
    return Work(2.0 * batch * layer.macs, float(elements * itemsize), layer.weights)


def backward(layer: Layer, batch: int, itemsize: int = 4, *, first: bool = False) -> Work:
    """The backward pass: the gradient of the weights, and of the inputs unless the layer is the network's `first`.

    Each takes the operations of the forward pass. The output's gradient is read for both, inputs and weights for one
    each; the gradients of inputs and weights are written.
    """
    weights = Work(2.0 * batch * layer.macs, float(batch * (layer.inputs + layer.outputs) + layer.weights))
    passes = 1 if first else 2
    return Work(passes * weights.flops, passes * weights.nbytes * itemsize, layer.weights)


def training_flops(model: Sequence[Layer] | Transformer, batch: int, recompute: str = "nothing") -> float:
    """Operations of one iteration: forward, backward, and what is computed again.

    Three times the forward pass, but for the inputs' gradient of the first layer, which nobody needs; with `recompute`
    "full" four times. "selective" is for transformers. Raises ValueError for another name.
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
    """The least time of a forward pass, each layer at its roof; normalization and activations are left out."""
    return sum(seconds(*forward(layer, batch, itemsize)[:2], device) for layer in table(model))


def backward_seconds(model: Sequence[Layer] | Transformer, batch: int, device: Device, itemsize: int = 4) -> float:
    """The least time of a backward pass, each layer at its roof."""
    layers = table(model)
    return sum(seconds(*backward(layer, batch, itemsize, first=not i)[:2], device) for i, layer in enumerate(layers))
