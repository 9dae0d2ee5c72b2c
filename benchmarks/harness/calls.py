"""Calls that two ranks make together, timed on the slower one."""

import time
from collections.abc import Callable
from typing import Any

FILL_SECONDS = 0.005  # of calls in one measurement


def slower_rank(mpi: Any, f: Callable, *args: Any, calls: int) -> float:
    """Seconds per call of `f(*args)`, of the slower rank of `mpi`."""
    from mpi4py import MPI

    mpi.Barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        f(*args)
    return mpi.allreduce(time.perf_counter() - begin, op=MPI.MAX) / calls


def calls_to_fill(mpi: Any, f: Callable, *args: Any) -> int:
    """Return how many calls fill `FILL_SECONDS`; the same on every rank."""
    slower_rank(mpi, f, *args, calls=2)  # warm up
    return max(1, min(500, int(FILL_SECONDS / slower_rank(mpi, f, *args, calls=2))))
