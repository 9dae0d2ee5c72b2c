"""Direct convolution on the CPU: an implicit matrix product, windows are read directly from the image.

In a channels-last image the S C numbers of one row of a window are neighbours, so a window is R segments of a row of
the matrix that im2col would store, or R S where there are channels enough. Tiles of outputs stay in registers along
all of them.
"""

import numpy as np
import torch
from numba import carray, njit

from hpcdl.kernels.cpu import threads
from hpcdl.kernels.cpu.product import PANEL, panel_product
from hpcdl.kernels.cpu.vectors import VECTOR_BYTES, lanes, zeros

ROWS_PER_TASK = 16
DEPTH = 64  # channels from which each pixel of a window is summed by itself
_FIELDS = "x B y row image down right P Q depth segments across panels outputs parts"
JOB = np.dtype(threads.COUNTERS + [(name, np.int64) for name in _FIELDS.split()])


@njit
def _work(pointer, like):
    """A task: some rows of one image's outputs, for one panel of filters, which stays in the cache."""
    job = carray(pointer, 1, JOB)[0]
    panel_bytes = PANEL * VECTOR_BYTES
    task = threads.take(pointer)
    while task < job.count:
        image, rest = divmod(task, job.panels * job.parts)
        panel, part = divmod(rest, job.parts)
        b = job.B + panel * job.segments * job.depth * panel_bytes
        for p in range(part * ROWS_PER_TASK, min((part + 1) * ROWS_PER_TASK, job.P)):
            a = job.x + image * job.image + p * job.down
            c = job.y + (image * job.P + p) * job.Q * job.outputs + panel * panel_bytes
            panel_product(a, job.right, job.Q, b, c, job.outputs, job.depth, job.segments, job.across, job.row, like)
        task = threads.take(pointer)


def _work_float32(job):
    _work(job, zeros(np.float32(0), 1))


def _work_float64(job):
    _work(job, zeros(np.float64(0), 1))


WORKERS = {torch.float32: _work_float32, torch.float64: _work_float64}


def direct(x: torch.Tensor, B: torch.Tensor, R: int, S: int, K: int, strides: tuple[int, int]) -> torch.Tensor:
    """y (N, P, Q, K) of x (N, H, W, C), contiguous and padded, and filters from `pack`; strides down and right."""
    N, H, W, C = x.shape
    P, Q = (H - R) // strides[0] + 1, (W - S) // strides[1] + 1
    panels, _, panel = B.shape
    y = x.new_empty(N, P, Q, panels * panel)
    parts, size, across = -(-P // ROWS_PER_TASK), x.itemsize, S if C >= DEPTH else 1
    job = np.zeros((), JOB)
    threads.fill(job, x=x, B=B, y=y, P=P, Q=Q, panels=panels, parts=parts)
    threads.fill(job, depth=S * C // across, segments=R * across, across=across)
    threads.fill(job, image=H * W * C * size, row=W * C * size, outputs=panels * panel * size)
    threads.fill(job, down=strides[0] * W * C * size, right=strides[1] * C * size)
    threads.run(WORKERS[x.dtype], job, N * panels * parts, N * P * Q * K * R * S * C)
    return y[..., :K]


def pack(w: torch.Tensor) -> torch.Tensor:
    """Filters (K, C, R, S) as panels (K / panel, R S C, panel), zeros for missing k."""
    K, panel = w.shape[0], PANEL * lanes(w.dtype)
    rows = torch.nn.functional.pad(w.permute(2, 3, 1, 0).reshape(-1, K), (0, -K % panel))
    return rows.unflatten(1, (-1, panel)).transpose(0, 1).contiguous()
