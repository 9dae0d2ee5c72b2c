"""The kernels of a network's layers (`hpcdl.nn.networks.Layer`): products by sizes, everything else by bytes.

A convolution is a matrix product (implicit GEMM): m = samples x positions, n = output channels, k = weights of one
channel. A linear layer has one position. Without tensor cores a convolution of r x r with stride 1 may take fewer
products instead: F(2 x 2, 3 x 3) in one kernel, F(4 x 4, 3 x 3) with its transforms in memory, or FFTs of tiles.
Libraries try them all, so the fastest counts. Tensor cores take channels last: other layouts are transposed before and
after.

Sources: Chetlur et al. 2014, "cuDNN"; Lavin and Gray 2016 (Winograd); Vasilache et al. 2015, "Fast convolutional nets
with fbfft"; NVIDIA 2023, "Convolutional layers user's guide", section 2 (layouts).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isqrt

from hpcdl.cost.kernels import Kernels, Product, tiled_seconds
from hpcdl.cost.layout import Layout
from hpcdl.cost.work import table
from hpcdl.nn.networks import Layer

# How often normalizations and activations move a layer's output, forward and backward, and the launches of these and
# the layer itself. Fused: read it for its mean, and again to write the activation; backward the same, and the gradient
# twice. Bias and activation without a normalization move as much. Eager: each operation separately; in 16 bits a kernel
# converts each layer's weights, another their gradient, and a third counts the batches of its normalization.
MOVES = {"fused": (3, 5), "eager": (5, 8)}
LAUNCHES = {"fused": (2, 3), "eager": (3, 4), "eager in 16 bits": (5, 5)}
FFT_TILES = (16, 32)  # as in cuDNN's tiled FFT


def network_seconds(model: Sequence[Layer], kernels: Kernels, layout: Layout, samples: int) -> tuple[float, float]:
    """Return the seconds of one microbatch's forward and backward pass on one rank."""
    layers, i = [part._replace(name="") for part in table(model)], layout.itemsize  # equal layers are timed once
    last = layout.channels_last
    forward = sum(_layer(part, kernels, samples, i, "forward", last) for part in layers)
    backward = sum(_layer(part, kernels, samples, i, "weights", last) for part in layers)
    backward += sum(_layer(part, kernels, samples, i, "inputs", last) for part in layers[1:])
    once = samples * i * sum(part.outputs for part in layers) / kernels.bandwidth
    passes, kind = [], layout.kernels
    launched = LAUNCHES["eager in 16 bits" if kind == "eager" and i < 4 else kind]
    for seconds, moves, launches in zip((forward, backward), MOVES[kind], launched, strict=True):
        count = launches * len(layers)
        passes.append(max(seconds + moves * once + count * kernels.gap, count * kernels.launch))
    return passes[0], passes[1] + passes[0] * (layout.recompute == "full")


@lru_cache(1 << 14)
def _layer(part: Layer, kernels: Kernels, samples: int, itemsize: float, way: str, channels_last: bool) -> float:
    """Return the seconds of a layer's product: "forward", or the gradient of its "inputs" or "weights"."""
    positions, channels, taken = sizes(part)
    data = itemsize * samples * (part.inputs + part.outputs)
    nbytes = data + itemsize * part.weights
    product = _turned(Product(samples * positions, channels, taken), way)
    direct = tiled_seconds(product, nbytes, kernels)
    if kernels.tensor or kernels.processors == 1:
        transposed = kernels.tensor and positions > 1 and not channels_last
        return direct + transposed * 2 * data / kernels.bandwidth
    return min([direct, *_fewer_products(part, kernels, samples, itemsize, way, nbytes)])


def sizes(part: Layer) -> tuple[int, int, float]:
    """Return a layer's positions for one image, its output channels, and the weights of one channel.

    A layer without weights has one position. Groups count as one: equally many operations in fewer, larger products.
    """
    positions = max(1, part.macs // part.weights) if part.weights else 1
    channels = max(1, part.outputs // positions)
    return positions, channels, part.macs / positions / channels


def _fewer_products(part, kernels, samples, itemsize, way, nbytes) -> Iterator[float]:
    """Yield the seconds by Winograd's algorithm and by FFTs, for r x r with stride 1 on square images; else nothing."""
    positions, channels, taken = sizes(part)
    side = isqrt(positions)
    taps = part.macs**2 // (part.weights * part.inputs * part.outputs) if part.weights else 0
    r = isqrt(taps)
    if r < 2 or part.macs**2 != r * r * part.weights * part.inputs * part.outputs or side * side != positions:
        return
    inputs = taken / taps  # channels

    def transformed(m: int, points: int, numbers: int, products: int) -> tuple[Product, float]:
        tiles = samples * (-(-side // m)) ** 2
        moved = itemsize * numbers * points * (tiles * inputs + tiles * channels + inputs * channels)
        return _turned(Product(tiles, channels, inputs, products * points), way), moved

    if r == 3:
        yield tiled_seconds(transformed(2, 16, 1, 1)[0], nbytes, kernels)  # transforms stay on the chip
        product, moved = transformed(4, 36, 1, 1)
        yield tiled_seconds(product, moved, kernels) + (nbytes + moved) / kernels.bandwidth
    for tile in FFT_TILES:
        if tile >= r:  # a complex number is two, a product of them four
            product, moved = transformed(tile - r + 1, tile * (tile // 2 + 1), 2, 4)
            yield tiled_seconds(product, moved, kernels) + (nbytes + moved) / kernels.bandwidth


def _turned(product: Product, way: str) -> Product:
    """Return the product that a layer with this forward `product` computes in `way`."""
    m, n, k, times, _ = product
    return {
        "forward": product,
        "inputs": Product(m, k, n, times),
        "weights": Product(n, k, m, times),
    }[way]
