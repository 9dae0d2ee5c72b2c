"""Sufficient factors: a linear layer's gradient sent as its two factor matrices.

For a layer with `inputs` and `outputs` and a batch of b samples, the gradient has inputs x outputs numbers, its factors
b (inputs + outputs). Factors cannot be summed on the way: each rank sends its own to every other rank, and each
computes every other rank's product. Source: Zhang et al. 2017, "Poseidon"; Xie et al. 2018, "Orpheus".
"""

from collections.abc import Sequence

from hpcdl.nn.networks import Layer


def is_linear(layer: Layer) -> bool:
    """Return whether each weight is used once for a sample, so that the gradient is a product of two factors."""
    return layer.macs == layer.weights > 0


def sent(layers: Sequence[Layer], ranks: int, samples: int) -> list[Layer]:
    """Return the layers, each with the number of weights sent one way through servers, or of factors if those are
    fewer.

    A gradient goes to the servers and the weights come back, so a message of weights counts twice its bytes.
    Factors go once, to `ranks` - 1 others.
    """
    return [
        layer._replace(weights=min(layer.weights, (ranks - 1) * samples * (layer.inputs + layer.outputs) // 2))
        if is_linear(layer)
        else layer
        for layer in layers
    ]


def operations(layers: Sequence[Layer], ranks: int, samples: int) -> float:
    """Return the operations for each rank to compute the others' gradients from their factors."""
    linear = (layer for layer in layers if is_linear(layer))
    return sum(
        2.0 * (ranks - 1) * samples * layer.weights
        for layer in linear
        if (ranks - 1) * samples * (layer.inputs + layer.outputs) // 2 < layer.weights
    )
