"""Compiled kernels on torch's own threads.

Two pools of threads would fight for the cores: OpenMP's threads keep spinning for a while after each torch operation.
So a kernel runs in the OpenMP that torch has loaded, by the call that compilers emit for `omp parallel`
(GOMP_parallel, which the libraries of GCC, LLVM and Intel all have). Without such a library it runs only in the calling
thread.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numba
import numpy as np
import torch
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

WORTH_A_THREAD = 1 << 20  # multiply-adds: about the time it takes to wake one
COUNTERS = [("next", np.int64), ("count", np.int64)]  # the first fields of every job


@intrinsic
def take(typingctx, job):
    """The next task of a job, 0, 1, 2, ..., each number given once, to one thread."""

    def build(context, builder, signature, arguments):
        integer = ir.IntType(64)
        place = builder.bitcast(arguments[0], integer.as_pointer())
        return builder.atomic_rmw("add", place, ir.Constant(integer, 1), "monotonic")

    return types.int64(types.voidptr), build


@cache
def compiled(worker: Callable):
    """`worker(job)`, compiled for a pointer to its job; kept on disk, where there is a place to write."""
    signature = types.void(types.voidptr)
    try:
        return numba.cfunc(signature, cache=True)(worker)
    except RuntimeError:  # no folder for the cache
        return numba.cfunc(signature)(worker)


def run(worker: Callable, job: np.ndarray, count: int, work: int) -> None:
    """Do `count` tasks of a job, a record that starts with `COUNTERS`, on torch's threads.

    `worker(job)` runs once on each thread and takes tasks until there are none. Little `work`, in multiply-adds, is
    not worth a second thread.
    """
    job["next"], job["count"] = 0, count
    workers = min(torch.get_num_threads(), count, 1 + work // WORTH_A_THREAD)
    pointer, function = ctypes.c_void_p(job.ctypes.data), compiled(worker)
    parallel = _gomp_parallel()
    if parallel and workers > 1:
        parallel(ctypes.c_void_p(function.address), pointer, workers, 0)
    else:
        function.ctypes(pointer)


def fill(job: np.ndarray, **fields) -> None:
    """Write fields of a job; tensors, which the caller keeps alive, go in as their addresses."""
    for name, value in fields.items():
        job[name] = value.data_ptr() if isinstance(value, torch.Tensor) else value


@cache
def _gomp_parallel():
    """OpenMP's entry point in the library that torch is linked with, None where it has none."""
    folder = Path(torch.__file__).parent / "lib"
    for library in folder.glob("libtorch_cpu.*"):
        parallel = getattr(ctypes.CDLL(str(library)), "GOMP_parallel", None)
        if parallel is not None:
            parallel.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
            parallel.restype = None
        return parallel
    return None
