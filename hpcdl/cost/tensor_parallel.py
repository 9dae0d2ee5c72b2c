"""Tensor parallelism: each layer of a transformer cut across ranks, two all-reduces each way.

Source: Shoeybi et al. 2019, "Megatron-LM: training multi-billion parameter language models using model parallelism".
"""

from collections.abc import Callable
from typing import NamedTuple


class Transformer(NamedTuple):
    """A decoder: layers, hidden size h, sequence length s, vocabulary V; embedding and output share weights."""

    layers: int
    hidden: int
    sequence: int
    vocabulary: int

    @property
    def parameters(self) -> int:
        """12 h^2 + 13 h for each layer, the embedding of words and positions, and the last normalization."""
        h = self.hidden
        return self.layers * (12 * h + 13) * h + (self.vocabulary + self.sequence + 2) * h

    def flops(self, batch: int, recompute: bool = True) -> float:
        """Operations of one iteration: 3 (24 b s h^2 + 4 b s^2 h) per layer, 4 with recompute, and 6 b s h V."""
        tokens, h = batch * self.sequence, self.hidden
        layer = 24 * tokens * h**2 + 4 * tokens * self.sequence * h
        return (3 + recompute) * self.layers * layer + 6.0 * tokens * h * self.vocabulary


class Step(NamedTuple):
    """Seconds of one iteration: matrix products that are split, the work every rank repeats, communication."""

    split: float
    repeated: float
    communication: float

    @property
    def seconds(self) -> float:
        return sum(self)


# Activations of b s h elements that one layer's normalizations (read, write), dropouts and residuals (read two, write
# one) move forward; backward it is twice as many. Every rank does this work on the whole activation.
REPEATED = 2 * 2 + 2 * 3


def step(
    model: Transformer,
    batch: int,
    ways: int,
    *,
    rate: float,
    bandwidth: float,
    all_reduce: Callable[[int], float],
    itemsize: int = 2,
    recompute: bool = True,
) -> Step:
    """One iteration on `ways` ranks: `rate` of the matrix products in operations/s, `bandwidth` of memory in bytes/s.

    `all_reduce` is seconds for bytes over `ways` ranks: 2 forward and 2 backward per layer, 2 more when it is
    recomputed.
    """
    activation = batch * model.sequence * model.hidden * itemsize
    passes = 3 + recompute
    return Step(
        model.flops(batch, recompute) / ways / rate,
        model.layers * passes * REPEATED * activation / bandwidth,
        model.layers * 2 * (2 + recompute) * all_reduce(activation),
    )
