"""The kernels of a transformer's layer and of its output, forward and backward, on one of the ranks that share the
work.

Matrix products cost by their sizes (`hpcdl.cost.kernels`), everything else by its bytes: normalizations, dropout,
residuals, activations, softmax. Attention either writes its scores to memory, or keeps them on the chip ("flash").
Kernels are either fused as in Megatron-LM, or "eager": one for each operation.

Sources: Shoeybi et al. 2019; Korthikanti et al. 2022 (what is divided by t, and what is not); Dao et al. 2022 (flash).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from hpcdl.cost.kernels import Kernels, Product, pass_seconds
from hpcdl.cost.work import Transformer

ATTENTION, KERNELS = ("scores", "flash"), ("eager", "fused")
MASK = 0.5  # a dropout's mask has a byte for each element: half of an element in 16 bits
FLASH = 0.7  # of the rate of a product of the same sizes: softmax is computed between the two products


class Cut(NamedTuple):
    """One rank's part of a layer: `samples` at a time, and how many ranks share the work, and how.

    `tensor` ranks split the products, `context` ranks split the sequence, `experts` ranks share the experts; the
    fullest expert has `imbalance` times the mean.
    """

    samples: float
    itemsize: float = 2
    tensor: int = 1
    sequence_parallel: bool = False
    context: int = 1
    experts: int = 1
    imbalance: float = 1.0
    attention: str = "scores"
    kernels: str = "fused"
    dropout: bool = True
    low: float = 1.0  # rate of the linear layers relative to the rest: 2 for float8


class Pass(NamedTuple):
    """Seconds of a layer: forward, its inputs' gradient, its weights' gradient, and its attention forward."""

    forward: float
    inputs: float
    weights: float
    attention: float = 0.0

    def __add__(self, other):
        return Pass(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def backward(self) -> float:
        """Return the seconds of both gradients."""
        return self.inputs + self.weights


@lru_cache(1 << 14)
def layer(model: Transformer, cut: Cut, kernels: Kernels) -> Pass:
    """Return the seconds of one layer on one rank, without messages."""
    linear = _linear(model, cut)
    attention = _attention(model, cut, kernels)
    moved, backward, count = _moved(model, cut)
    fast = kernels._replace(rate=kernels.rate * cut.low)
    casts = _casts(linear, cut)
    forward = pass_seconds(linear, moved + casts, count + 3 * len(linear) * (casts > 0), fast, cut.itemsize)
    gradients, once = [_gradient(product) for product in linear], [_input(product) for product in linear]
    inputs = pass_seconds(once, backward + casts, 1.5 * count, fast, cut.itemsize)
    weights = pass_seconds(gradients, casts, 2 * len(linear), fast, cut.itemsize)
    return Pass(forward, inputs, weights) + attention


@lru_cache(1 << 14)
def output(model: Transformer, cut: Cut, kernels: Kernels) -> Pass:
    """Return the seconds of the output: logits, their cross entropy in float32, and both gradients."""
    tokens, h = cut.samples * model.sequence / cut.context, model.hidden
    words = -(-model.vocabulary // cut.tensor)
    forward, backward = (24, 16) if cut.kernels == "eager" else (16, 12)  # bytes for each logit
    product, logits = Product(tokens, words, h), tokens * words
    norm = 4 * tokens * h * cut.itemsize / (cut.tensor if cut.sequence_parallel else 1)
    return Pass(
        pass_seconds([product], logits * forward + norm, 10, kernels, cut.itemsize),
        pass_seconds([_input(product)], logits * backward + 2 * norm, 10, kernels, cut.itemsize),
        pass_seconds([_gradient(product)], norm, 4, kernels, cut.itemsize),
    )


def _linear(model: Transformer, cut: Cut) -> list[Product]:
    """Return the four linear layers: queries, keys and values; the attention's output; up; down."""
    h, t = model.hidden, cut.tensor
    tokens = cut.samples * model.sequence / cut.context
    rows, count = tokens, 1.0
    if model.experts > 1:
        count = max(1.0, model.experts / cut.experts)
        rows = tokens * model.active * cut.imbalance / count
    wide = model.wide / t
    return [
        Product(tokens, (h + 2 * model.keys) / t, h),
        Product(tokens, h, h / t),
        Product(rows, (1 + model.gated) * wide, h, count),
        Product(rows, h, wide, count),
    ]


def _input(product: Product) -> Product:
    return product._replace(n=product.k, k=product.n)


def _gradient(product: Product) -> Product:
    """Return the weights' gradient, added to a sum in float32 as it is computed."""
    m, n, k, times, _ = product
    return Product(n, k, m, times, 6 * n * k * times)


def _casts(linear: Sequence[Product], cut: Cut) -> float:
    """Return the bytes to round inputs and weights to float8: find the largest, then read and write all."""
    if cut.low == 1.0:
        return 0.0
    return sum(5.0 * product.times * (product.m * product.k + product.k * product.n) for product in linear)


def _attention(model: Transformer, cut: Cut, kernels: Kernels) -> Pass:
    """Return the seconds of softmax(Q K') V for this rank's heads and its part of the sequence, over all keys."""
    heads, s = cut.samples * model.heads / cut.tensor, model.sequence
    rows, width, i = s / cut.context, model.hidden / model.heads, cut.itemsize
    if cut.attention == "flash":
        halves = 0.5 if model.causal else 1.0
        inner = kernels._replace(rate=kernels.rate * FLASH)
        moved = 4 * heads * rows * width * i
        pair = Product(rows, s, width, heads * halves).flops
        forward = max(2 * pair / inner.rate, moved / kernels.bandwidth) + 2 * kernels.gap
        return Pass(forward, max(5 * pair / inner.rate, 2 * moved / kernels.bandwidth), 0.0, forward)
    scores, dropout = heads * rows * s * i, (2 + MASK) * cut.dropout
    eager = 4 * (cut.kernels == "eager")  # the scale and the mask as separate kernels
    to, back = Product(rows, s, width, heads), Product(rows, width, s, heads)
    forward = pass_seconds([to, back], scores * (2 + dropout + eager), 4 + eager, kernels, i)
    inputs = pass_seconds([to, back, back, back], scores * (3 + dropout + eager), 6 + eager, kernels, i)
    return Pass(forward, inputs, 0.0, forward)


def _moved(model: Transformer, cut: Cut) -> tuple[float, float, float]:
    """Return the bytes of everything except products and attention, forward and backward, and the number of forward
    kernels.

    For each token's h elements: two normalizations (read, write) and two residuals (read two, write one), with dropouts
    in between; backward also reads their inputs. For the wide elements: the activation.
    """
    tokens, d = cut.samples * model.sequence / cut.context, cut.dropout * 1.0
    eager = cut.kernels == "eager"
    narrow = 4 + 6 + 2 * MASK * d + (4 * d if eager else 0)
    narrow_back = 6 + 6 + (4 + 2 * MASK) * d
    norms = 8 * eager * model.gated  # root mean squares in float32, one operation at a time
    gate = model.gated * (3 if eager else 1)
    rotary = 3 * eager * model.gated
    wide = tokens * model.wide / cut.tensor * (model.active * cut.imbalance if model.experts > 1 else 1)
    h = tokens * model.hidden / (cut.tensor if cut.sequence_parallel else 1)
    routed = 4 * tokens * model.hidden * model.active * (model.experts > 1)  # sorted by expert, and back
    qkv = tokens * (model.hidden + 2 * model.keys) / cut.tensor * (2 + rotary)
    forward = h * (narrow + norms) + wide * (2 + gate) + routed + qkv
    backward = h * (narrow_back + norms) + wide * (3 + 2 * gate) + routed + qkv
    return forward * cut.itemsize, backward * cut.itemsize, 24 if eager else 12
