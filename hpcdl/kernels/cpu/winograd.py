"""Winograd convolution on the CPU, block by block, so that a block's tiles stay in the cache.

Three phases for each block of tiles: transform the pixels, multiply at each of the (m + 2)^2 positions, transform back.
Images are channels-last, so that one instruction serves a vector of channels, and transforms are the additions of
`winograd_transforms`, compiled for vectors.
"""

import numpy as np
import torch
from numba import carray, njit
from numba.extending import overload, register_jitable

from hpcdl.kernels.cpu import threads
from hpcdl.kernels.cpu.product import PANEL, panel_product
from hpcdl.kernels.cpu.vectors import VECTOR_BYTES, lanes, read, stack, write, zeros
from hpcdl.kernels.winograd_transforms import DATA, RESULT, TAPS

BLOCK_BYTES = 6 << 20  # of transformed pixels and products, about what caches hold; more where filters are larger,
# since each block reads all of them again
SPACING = 16  # numbers between rows: equal positions of rows fall into different sets of the cache
TILES_PER_TASK = 4
PANELS_PER_TASK = 4
SCATTER, MULTIPLY, GATHER, FILTERS = range(4)  # the phases, and the transform of filters

_FIELDS = """phase x U V M y H W C P Q K top left down across first block panels itemsize
position_v row_v position_m row_m"""
JOB = np.dtype(threads.COUNTERS + [(name, np.int64) for name in _FIELDS.split()])


def data(d):
    """B^T on a tuple of vectors."""


def result(m):
    """A^T on a tuple of vectors."""


def taps(g, like):
    """G on a tuple of three vectors, to as many as `like` has."""


overload(data)(lambda d: DATA[len(d) - 2])
overload(result)(lambda m: RESULT[len(m) - 2])


@overload(taps)
def _taps(g, like):
    transform = register_jitable(TAPS[len(like) - 2])
    return lambda g, like: transform(g)


@njit
def _tile(job, index, m):
    """The image, first output row and first output column of a tile."""
    image, rest = divmod(job.first + index, job.down * job.across)
    row, column = divmod(rest, job.across)
    return image, row * m, column * m


@njit
def _scatter(job, index, like):
    """Pixels of a tile to their transform, V[position, tile, channel]."""
    side = len(like)
    image, row, column = _tile(job, index, side - 2)
    row, column = row - job.top, column - job.left
    pixel = job.C * job.itemsize
    corner = job.x + ((image * job.H + row) * job.W + column) * pixel
    inside = row >= 0 and column >= 0 and row + side <= job.H and column + side <= job.W
    local, half = stack(like, 36), stack(like, 36)
    for c in range(0, pixel, VECTOR_BYTES):
        source, down, right = corner + c, job.W * pixel, pixel
        if not inside:
            _fetch(job, source, row, column, local, like)
            source, down, right = local, side * VECTOR_BYTES, VECTOR_BYTES
        for j in range(side):
            write(half + j * VECTOR_BYTES, side * VECTOR_BYTES, data(read(source + j * right, down, like)))
        target = job.V + index * job.row_v + c
        for i in range(side):
            lines = data(read(half + i * side * VECTOR_BYTES, VECTOR_BYTES, like))
            write(target + i * side * job.position_v, job.position_v, lines)


@njit
def _fetch(job, source, row, column, local, like):
    """A tile at the border: its pixels, and zeros beyond the image."""
    side, pixel, zero = len(like), job.C * job.itemsize, like[:1]
    for i in range(side):
        for j in range(side):
            target = local + (i * side + j) * VECTOR_BYTES
            if 0 <= row + i < job.H and 0 <= column + j < job.W:
                write(target, 0, read(source + (i * job.W + j) * pixel, 0, zero))
            else:
                write(target, 0, zero)


@njit
def _multiply(job, task, like):
    """M[position, tiles, k] = V[position, tiles, c] U[position, c, k] for some panels of k."""
    per_position = -(-job.panels // PANELS_PER_TASK)
    position, part = divmod(task, per_position)
    panel_bytes = job.C * PANEL * VECTOR_BYTES
    a, c = job.V + position * job.position_v, job.M + position * job.position_m
    for panel in range(part * PANELS_PER_TASK, min((part + 1) * PANELS_PER_TASK, job.panels)):
        b = job.U + (position * job.panels + panel) * panel_bytes
        panel_product(a, job.row_v, job.block, b, c + panel * PANEL * VECTOR_BYTES, job.row_m, job.C, 1, 1, 0, like)


@njit
def _gather(job, index, like):
    """Products of a tile to its m x m outputs."""
    side = len(like)
    m = side - 2
    image, row, column = _tile(job, index, m)
    rows, columns = min(m, job.P - row), min(m, job.Q - column)
    pixel = job.K * job.itemsize
    corner = job.y + ((image * job.P + row) * job.Q + column) * pixel
    half, line = stack(like, 36), stack(like, 36)
    for k in range(0, pixel, VECTOR_BYTES):
        source = job.M + index * job.row_m + k
        for j in range(side):
            lines = read(source + j * job.position_m, side * job.position_m, like)
            write(half + j * VECTOR_BYTES, side * VECTOR_BYTES, result(lines))
        for i in range(rows):
            outputs = result(read(half + i * side * VECTOR_BYTES, VECTOR_BYTES, like))
            target = corner + i * job.Q * pixel + k
            if columns == m:
                write(target, pixel, outputs)
            else:
                write(line, VECTOR_BYTES, outputs)
                for j in range(columns):
                    write(target + j * pixel, 0, read(line + j * VECTOR_BYTES, 0, like[:1]))


@njit
def _filters(job, c, like):
    """The filters of one input channel to their transform, U[position, panel, c, k]."""
    side, width = len(like), PANEL * VECTOR_BYTES
    plane = job.C * job.panels * width
    half = stack(like, 18)
    for k in range(0, job.panels * width, VECTOR_BYTES):
        source = job.x + c * job.panels * width + k
        for s in range(3):
            write(half + s * VECTOR_BYTES, 3 * VECTOR_BYTES, taps(read(source + s * plane, 3 * plane, like[:3]), like))
        target = job.U + (k // width * job.C + c) * width + k % width
        for i in range(side):
            lines = taps(read(half + i * 3 * VECTOR_BYTES, VECTOR_BYTES, like[:3]), like)
            write(target + i * side * plane, plane, lines)


@njit
def _work(pointer, like):
    job = carray(pointer, 1, JOB)[0]
    task = threads.take(pointer)
    while task < job.count:
        if job.phase == MULTIPLY:
            _multiply(job, task, like)
        elif job.phase == FILTERS:
            _filters(job, task, like)
        else:
            for index in range(task * TILES_PER_TASK, min((task + 1) * TILES_PER_TASK, job.block)):
                if job.phase == SCATTER:
                    _scatter(job, index, like)
                else:
                    _gather(job, index, like)
        task = threads.take(pointer)


def _work_2_float32(job):
    _work(job, zeros(np.float32(0), 4))


def _work_2_float64(job):
    _work(job, zeros(np.float64(0), 4))


def _work_4_float32(job):
    _work(job, zeros(np.float32(0), 6))


def _work_4_float64(job):
    _work(job, zeros(np.float64(0), 6))


WORKERS = {
    (2, torch.float32): _work_2_float32,
    (2, torch.float64): _work_2_float64,
    (4, torch.float32): _work_4_float32,
    (4, torch.float64): _work_4_float64,
}


def winograd(
    m: int, x: torch.Tensor, U: torch.Tensor, K: int, size: tuple[int, int], paddings: tuple[int, int]
) -> torch.Tensor:
    """y (N, P, Q, K), size P x Q, of x (N, H, W, C), contiguous, C a multiple of `lanes`, and U from `pack`.

    `paddings` are the rows above and the columns to the left.
    """
    (N, H, W, C), (P, Q) = x.shape, size
    positions, panels, _, panel = U.shape
    down, across, outputs = -(-P // m), -(-Q // m), _round_up(K, lanes(x.dtype))
    tiles = N * down * across
    block = _block(tiles, positions * (C + panels * panel) * x.itemsize, max(BLOCK_BYTES, U.nbytes // 2))
    V, M = _rows(positions, block, C, x), _rows(positions, block, panels * panel, x)
    y = x.new_empty(N, P, Q, outputs)
    job = np.zeros((), JOB)
    threads.fill(job, x=x, U=U, V=V, M=M, y=y, H=H, W=W, C=C, P=P, Q=Q, K=outputs)
    threads.fill(job, top=paddings[0], left=paddings[1], down=down, across=across, panels=panels, itemsize=x.itemsize)
    threads.fill(job, position_v=_bytes(V, 0), row_v=_bytes(V, 1), position_m=_bytes(M, 0), row_m=_bytes(M, 1))
    work = {SCATTER: C * positions, MULTIPLY: C * outputs * positions, GATHER: outputs * positions}
    for first in range(0, tiles, block):
        job["first"], job["block"] = first, min(block, tiles - first)
        some_tiles, some_panels = -(-job["block"] // TILES_PER_TASK), positions * -(-panels // PANELS_PER_TASK)
        for phase, tasks in ((SCATTER, some_tiles), (MULTIPLY, some_panels), (GATHER, some_tiles)):
            job["phase"] = phase
            threads.run(WORKERS[m, x.dtype], job, int(tasks), int(job["block"]) * work[phase])
    return y[..., :K]


def _block(tiles: int, bytes_per_tile: int, most: int) -> int:
    """Tiles in a block: blocks of equal size, about `most` bytes."""
    blocks = max(1, round(tiles * bytes_per_tile / most))
    return -(-tiles // blocks)


def _round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _rows(positions, block, width, like) -> torch.Tensor:
    """Memory for (positions, block, width), with gaps between rows and between positions."""
    row = width + SPACING
    return like.new_empty(positions * (block * row + SPACING)).as_strided(
        (positions, block, width), (block * row + SPACING, row, 1)
    )


def _bytes(tensor, axis) -> int:
    return tensor.stride(axis) * tensor.itemsize


def pack(m: int, w: torch.Tensor) -> torch.Tensor:
    """Filters (K, C, 3, 3), transformed, as panels ((m + 2)^2, K / panel, C, panel), zeros for missing k and c."""
    K, C = w.shape[:2]
    panel = PANEL * lanes(w.dtype)
    depth, panels = _round_up(C, lanes(w.dtype)), -(-K // panel)
    planes = w.new_zeros(3, 3, depth, panels * panel)
    planes[..., :C, :K] = w.permute(2, 3, 1, 0)
    U = w.new_empty((m + 2) ** 2, panels, depth, panel)
    job = np.zeros((), JOB)
    threads.fill(job, phase=FILTERS, x=planes, U=U, C=depth, panels=panels)
    threads.run(WORKERS[m, w.dtype], job, depth, 10 * U.numel())
    return U
