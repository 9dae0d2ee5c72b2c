"""Products of spectra on the CPU: at each frequency a complex matrix product over the channels.

    Y[n, k, f] = sum over c of conj(W[k, c, f]) X[n, c, f]

The spectra stay as the transform leaves them, frequencies side by side: a vector holds a few frequencies, and eight
images' sums stay in registers along the channels. A task is a stretch of frequencies whose part of X fits the cache.
"""

import numpy as np
import torch
from numba import carray, njit

from hpcdl.kernels.cpu import threads
from hpcdl.kernels.cpu.vectors import (
    VECTOR_BYTES,
    add_multiples,
    imaginary_parts,
    prefetch,
    read,
    real_parts,
    turned,
    write,
    zeros,
)

STRETCH = 8  # vectors of frequencies in a task
_FIELDS = "X W Y N C K groups spectrum stretches"
JOB = np.dtype(threads.COUNTERS + [(name, np.int64) for name in _FIELDS.split()])


@njit
def _sum(job, x, w, y, image_x, image_y, zero):
    """One vector of frequencies of as many images as `zero` has vectors."""
    real, imaginary, filters = zero, zero, job.C * job.spectrum  # from one k to the next
    for _ in range(job.C):
        values, filter_ = read(x, image_x, zero), read(w, 0, zero[:1])[0]
        real = add_multiples(real, real_parts(filter_), values)
        imaginary = add_multiples(imaginary, imaginary_parts(filter_), values)
        prefetch(w + filters)
        x += job.spectrum
        w += job.spectrum
    _finish(y, image_y, real, imaginary)


@njit
def _finish(y, image_y, real, imaginary):
    for real_part, imaginary_part in zip(real, imaginary):  # noqa: B905 - Numba knows no strict
        write(y, 0, (real_part + turned(imaginary_part),))
        y += image_y


@njit
def _images(job, x, w, y, image_x, image_y, eight, two, one):
    n = 0
    while n < job.N:
        if n + 8 <= job.N:
            _sum(job, x, w, y, image_x, image_y, eight)
            step = 8
        elif n + 2 <= job.N:
            _sum(job, x, w, y, image_x, image_y, two)
            step = 2
        else:
            _sum(job, x, w, y, image_x, image_y, one)
            step = 1
        n, x, y = n + step, x + step * image_x, y + step * image_y


@njit
def _work(pointer, eight, two, one):
    job = carray(pointer, 1, JOB)[0]
    groups_x, groups_y = job.C * job.spectrum, job.K * job.spectrum
    task = threads.take(pointer)
    while task < job.count:
        group, stretch = divmod(task, job.stretches)
        for k in range(job.K):
            for vector in range(stretch * STRETCH, (stretch + 1) * STRETCH):
                f = min(vector * VECTOR_BYTES, job.spectrum - VECTOR_BYTES)  # the last one again where it is cut
                x, y = job.X + group * groups_x + f, job.Y + group * groups_y + k * job.spectrum + f
                w = job.W + (group * job.K + k) * groups_x + f
                _images(job, x, w, y, job.groups * groups_x, job.groups * groups_y, eight, two, one)
        task = threads.take(pointer)


def _work_float32(job):
    zero = np.float32(0)
    _work(job, zeros(zero, 8), zeros(zero, 2), zeros(zero, 1))


def _work_float64(job):
    zero = np.float64(0)
    _work(job, zeros(zero, 8), zeros(zero, 2), zeros(zero, 1))


WORKERS = {torch.complex64: _work_float32, torch.complex128: _work_float64}


def spectrum_products(X: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    """Y (N, groups, K, F) of X (N, groups, C, F) and W (groups, K, C, F), complex."""
    X, W = X.contiguous(), W.contiguous()
    N, groups, C, F = X.shape
    if F * X.itemsize < VECTOR_BYTES:
        return torch.einsum("gkcf,ngcf->ngkf", W.conj(), X)
    K = W.shape[1]
    Y = X.new_empty(N, groups, K, F)
    stretches = -(-F * X.itemsize // (STRETCH * VECTOR_BYTES))
    job = np.zeros((), JOB)
    threads.fill(job, X=X, W=W, Y=Y, N=N, C=C, K=K, groups=groups)
    threads.fill(job, spectrum=F * X.itemsize, stretches=stretches)
    threads.run(WORKERS[X.dtype], job, groups * stretches, 4 * N * groups * K * C * F)
    return Y
