"""The time of kernels: matrix products by their sizes, everything else by its bytes, plus the launch.

A matrix product is computed in tiles, and each of the device's processors takes one tile at a time. Tiles at the edge
are computed whole (tile quantization), and the last wave of tiles is rarely full (wave quantization). A small tile
reads more bytes for each operation, so it is slower. Before a tile's first operation its pipeline fills. A product
never takes less time than its bytes.

Source: NVIDIA 2023, "Matrix multiplication background user's guide", sections 2 and 3; Osama et al. 2023, "Stream-K".
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

# Rows and columns of a tile, and its rate relative to the largest tile's: proportional to its operations per byte, up
# to four fifths of the largest's, which suffice.
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.94), (128, 64, 0.7), (64, 128, 0.7), (64, 64, 0.5))
SPLITS = (1, 2, 4, 8, 16)  # parts of the inner dimension, computed in parallel and then summed
FILL = 64  # of the inner dimension: the cost to fill and drain a tile's pipeline


class Kernels(NamedTuple):
    """The rates that a device's kernels reach.

    `rate` operations per second of a large matrix product, `bandwidth` bytes per second of everything else,
    `processors` that compute one tile each. A kernel's start and end take `gap` seconds; the host needs `launch`
    seconds for each kernel, while the device computes earlier ones.
    """

    rate: float
    bandwidth: float
    processors: int = 1
    launch: float = 0.0
    gap: float = 0.0


class Product(NamedTuple):
    """`times` matrix products of m x k and k x n; `extra` bytes are moved besides inputs and result."""

    m: float
    n: float
    k: float
    times: float = 1
    extra: float = 0.0

    @property
    def flops(self) -> float:
        """Two operations for each multiplication."""
        return 2.0 * self.m * self.n * self.k * self.times


@lru_cache(1 << 16)
def product_seconds(product: Product, kernels: Kernels, itemsize: float = 2) -> float:
    """Return the seconds of a matrix product: its tiles in waves, or its bytes, whichever takes longer.

    The fastest of all tiles and splits counts, as libraries choose. With one processor there are no tiles.
    """
    m, n, k, times, extra = product
    nbytes = itemsize * times * (m * k + k * n + m * n) + extra
    if kernels.processors == 1:
        return max(product.flops / kernels.rate, nbytes / kernels.bandwidth)
    each = kernels.rate / kernels.processors
    best = float("inf")
    for rows, columns, share in TILES:
        tiles = times * -(-m // rows) * -(-n // columns)
        for split in SPLITS:
            waves = -(-tiles * split // kernels.processors)
            arithmetic = waves * 2.0 * rows * columns * (k / split + FILL) / (each * share)
            sums = 4.0 * times * m * n * split * (split > 1)
            best = min(best, max(arithmetic, (nbytes + sums) / kernels.bandwidth))
            if k / split <= 4 * FILL:
                break
    return best


def pass_seconds(
    products: Iterable[Product], nbytes: float, count: float, kernels: Kernels, itemsize: float = 2
) -> float:
    """Return the seconds of one pass: its products and its bytes, or launching its `count` kernels."""
    device = sum(product_seconds(product, kernels, itemsize) for product in products) + nbytes / kernels.bandwidth
    return max(device + count * kernels.gap, count * kernels.launch)
