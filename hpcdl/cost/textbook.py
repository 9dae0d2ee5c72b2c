"""The costs as printed in books: smooth in n / p and log2 p, dominant links only. Arguments are numbers or NumPy
arrays.

`ALL_REDUCE` follows Thakur, Rabenseifner and Gropp 2005 ("Optimization of collective communication operations in
MPICH") where p is a power of two and n divisible by p, where it equals `hpcdl.cost.collectives` (the flat ones).
`LECTURE` is the table of the lecture on distributed deep learning, M bytes over N workers, without gamma; its
parameter server counts latency once each way, since all workers send at the same time, but bandwidth N - 1 times,
since they share the server's link. `COMPLEXITY` has the O() columns of that table.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Formula = Callable[..., Any]  # numbers to a number, arrays to an array

ALL_REDUCE: dict[str, Formula] = {
    "naive": lambda p, n, a, b, g=0.0: 2 * (p - 1) * (a + n * b) + (p - 1) * n * g,
    "ring": lambda p, n, a, b, g=0.0: 2 * (p - 1) * a + (p - 1) / p * n * (2 * b + g),
    "tree": lambda p, n, a, b, g=0.0: np.log2(p) * (2 * a + 2 * n * b + n * g),
    "recursive_doubling": lambda p, n, a, b, g=0.0: np.log2(p) * (a + n * b + n * g),
    "rabenseifner": lambda p, n, a, b, g=0.0: 2 * np.log2(p) * a + (p - 1) / p * n * (2 * b + g),
    "parameter_server": lambda p, n, a, b, g=0.0, servers=1: (p - 1) * (2 * a + n / servers * (2 * b + g)),
}

LECTURE: dict[str, Formula] = {
    "parameter_server": lambda N, M, a, b: 2 * a + 2 * (N - 1) * M * b,
    "ring": lambda N, M, a, b: 2 * (N - 1) * a + 2 * (N - 1) / N * M * b,
    "tree": lambda N, M, a, b: 2 * a * np.log2(N) + 2 * np.log2(N) * M * b,
    "broadcast": lambda N, M, a, b: a * np.log2(N) + np.log2(N) * M * b,
    "all_gather": lambda N, M, a, b: a * np.log2(N) + (N - 1) * M * b,
}


class Growth(NamedTuple):
    """How a cost grows: the text inside O() in the table, and a function of workers N and bytes M."""

    printed: str
    of: Callable[[float, float], float]


ONE, WORKERS, LOG = (
    Growth("1", lambda N, M: 1.0),
    Growth("N", lambda N, M: N),
    Growth("log(N)", lambda N, M: np.log2(N)),
)
BYTES, BYTES_WORKERS, BYTES_LOG = (
    Growth("M", lambda N, M: M),
    Growth("MN", lambda N, M: M * N),
    Growth("M log(N)", lambda N, M: M * np.log2(N)),
)

# The table's columns of complexity: latency (consecutive messages) and bandwidth (bytes through one link).
COMPLEXITY = {
    "parameter_server": (ONE, BYTES_WORKERS),
    "ring": (WORKERS, BYTES),
    "tree": (LOG, BYTES_LOG),
    "broadcast": (LOG, BYTES_LOG),
    "all_gather": (LOG, BYTES_WORKERS),
}
