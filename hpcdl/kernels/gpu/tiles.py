"""Block sizes to try for each kernel, apart from the kernels: Triton's interpreter has no autotuner.

On a card the first launch with a new problem times the kernel's tiles, which takes a second, and keeps the fastest for
as long as the process lives. A tile that wants more shared memory than the card has is passed over.
"""

import functools
from typing import NamedTuple

from hpcdl.kernels.gpu.base import INTERPRETED, triton


class Tile(NamedTuple):
    """Block sizes of a kernel by name, warps of a program, and loads in flight (`num_stages`)."""

    blocks: dict[str, int]
    warps: int
    stages: int


def _product(bm: int, bn: int, bk: int, warps: int, stages: int) -> Tile:
    return Tile({"BM": bm, "BN": bn, "BK": bk}, warps, stages)


# The arguments that make a problem new, so that its tiles are timed again.
PROBLEM = {"rows", "columns", "R", "S", "C", "CHANNELS", "TAP", "PRECISION"}
# For inputs of 2 bytes; of 4 bytes on tensor cores; of 4 bytes multiplied exactly, which costs registers.
PRODUCTS = {
    "half": [
        _product(128, 256, 64, 8, 3),
        _product(128, 256, 32, 8, 3),
        _product(128, 128, 64, 8, 3),
        _product(128, 128, 64, 8, 2),
        _product(128, 64, 64, 4, 3),
        _product(64, 128, 64, 4, 3),
        _product(64, 64, 64, 4, 3),
    ],
    "tf32": [
        _product(128, 128, 32, 8, 3),
        _product(128, 64, 32, 4, 4),
        _product(64, 64, 32, 4, 4),
        _product(64, 64, 32, 4, 2),
    ],
    "ieee": [
        _product(64, 64, 16, 4, 2),
        _product(128, 64, 16, 8, 2),
        _product(32, 64, 16, 4, 2),
    ],
}
# For the band matrices of a depthwise convolution: pairs of image and row in one program.
BANDS = [
    Tile({"BM": 128}, 4, 2),
    Tile({"BM": 128}, 4, 3),
    Tile({"BM": 64}, 4, 3),
    Tile({"BM": 256}, 8, 2),
]


def launch_product(kernel, grid, *arguments, **constants) -> None:
    """Run a matrix product on a grid that depends on its tile: the fastest on a card, a small one when interpreted."""
    precision = constants["PRECISION"] if arguments[0].element_size() == 4 else "half"
    kind = "tf32" if precision == "tf32x3" else precision
    _launch(kernel, grid, arguments, constants, kind, {"BM": 16, "BN": 16, "BK": 16})


def launch_bands(kernel, grid, *arguments, **constants) -> None:
    """Run `band_products`, as `launch_product` does."""
    _launch(kernel, grid, arguments, constants, "bands", {"BM": 16})


def _launch(kernel, grid, arguments: tuple, constants: dict, kind: str, interpreted: dict[str, int]) -> None:
    if INTERPRETED:
        kernel[grid](*arguments, **constants, **interpreted)
    else:
        _tuned(kernel, kind)[grid](*arguments, **constants)


@functools.cache
def _tuned(kernel, kind: str):
    tiles = BANDS if kind == "bands" else PRODUCTS[kind]
    configs = [triton.Config(tile.blocks, num_warps=tile.warps, num_stages=tile.stages) for tile in tiles]
    key = [name for name in kernel.arg_names if name in PROBLEM]
    return triton.autotune(configs, key=key, do_bench=_median)(kernel)


def _median(call, quantiles) -> list[float]:
    """Return the milliseconds of a launch; a few dozen launches of a layer decide between tiles."""
    return triton.testing.do_bench(call, warmup=5, rep=25, quantiles=quantiles)
