"""HOGWILD! for sparse logistic regression, compiled: threads without the interpreter's lock; and the locked peers.

The updates are those of `hogwild` with `logistic`. What Numba compiles has no annotations: it finds the types itself.
"""

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import torch
from numba.core import types
from numba.extending import intrinsic

from hpcdl.data import SparseRows

SPIN = 200  # looks at a lock before another thread may have the core


def logistic_epochs(
    rows: SparseRows,
    w: torch.Tensor,
    lr: float,
    epochs: int = 1,
    threads: int = 2,
    how: str = "free",
    seed: int = 0,
) -> None:
    """`threads` threads see all rows once in each epoch, each a share of them in an order drawn from `seed`.

    `w` (features,), float32, changes in place. `how` they meet: "free" locks nothing (HOGWILD!), "locked" takes one
    lock for reading and writing, "round robin" lets them write in turns (Langford et al. 2009). With one thread all
    give the same bits. Raises ValueError for another `how`, a `w` that does not fit, or fewer than one thread.
    """
    _check(rows, w, threads, how)
    random = np.random.default_rng(seed)
    columns = rows.columns.numpy().view(np.uint32)  # none is negative: so the loops need not look
    data = [rows.starts.numpy(), columns, rows.values.numpy(), rows.y.numpy(), w.numpy()]
    step = np.float32(lr)
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(epochs):
            shares = np.array_split(random.permutation(len(rows)), threads)
            word = np.zeros(8, dtype=np.int64)  # the lock, or how many updates are done; a cache line of its own
            args = [(*data, step, share, word, t, threads) for t, share in enumerate(shares)]
            jobs = [pool.submit(LOOPS[how], *arg) for arg in args]
            for job in jobs:
                job.result()


def _check(rows: SparseRows, w: torch.Tensor, threads: int, how: str) -> None:
    if how not in LOOPS:
        raise ValueError(f"how is {how!r}; it is one of {', '.join(LOOPS)}")
    if w.shape != (rows.features,) or w.dtype != torch.float32 or not w.is_contiguous() or w.requires_grad:
        raise ValueError(f"w is {tuple(w.shape)}, {w.dtype}; give ({rows.features},) contiguous float32, no parameter")
    if threads < 1:
        raise ValueError(f"threads is {threads}; at least one makes the updates")


# -- what all threads see in one step ---------------------------------------------------------------------------------


def _atomic(operation):
    """A function of (int64 array, value) that puts `operation` of both into array[0], and returns what was there."""

    @intrinsic
    def at_once(typingctx, array, value):
        def build(context, builder, signature, arguments):
            pointer = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            return builder.atomic_rmw(operation, pointer, arguments[1], "seq_cst")

        return types.int64(array, types.int64), build

    return at_once


_exchange, _add = _atomic("xchg"), _atomic("add")
_let_others_run = types.ExternalFunction("sched_yield", types.intc())


@numba.njit(nogil=True)
def _lock(word):
    looks = 0
    while _exchange(word, 1):
        looks += 1
        if looks % SPIN == 0:
            _let_others_run()


@numba.njit(nogil=True)
def _await_turn(word, turn):
    looks = 0
    while _add(word, 0) < turn:
        looks += 1
        if looks % SPIN == 0:
            _let_others_run()


# -- an update --------------------------------------------------------------------------------------------------------


@numba.njit(nogil=True, fastmath=True)
def _change(starts, columns, values, y, w, lr, i):
    """lr y / (1 + exp(y x w)): the change of w is this times x."""
    z = np.float32(0.0)
    for j in range(starts[i], starts[i + 1]):
        z += values[j] * w[columns[j]]
    return lr * y[i] / (np.float32(1.0) + np.exp(y[i] * z))


@numba.njit(nogil=True)
def _apply(starts, columns, values, w, change, i):
    for j in range(starts[i], starts[i + 1]):
        w[columns[j]] += change * values[j]


@numba.njit(nogil=True)
def _free(starts, columns, values, y, w, lr, order, word, thread, threads):
    for i in order:
        _apply(starts, columns, values, w, _change(starts, columns, values, y, w, lr, i), i)


@numba.njit(nogil=True)
def _locked(starts, columns, values, y, w, lr, order, word, thread, threads):
    for i in order:
        _lock(word)
        _apply(starts, columns, values, w, _change(starts, columns, values, y, w, lr, i), i)
        _exchange(word, 0)


@numba.njit(nogil=True)
def _round_robin(starts, columns, values, y, w, lr, order, word, thread, threads):
    """Update k of thread t is the (k threads + t)-th of all; `array_split` gives longer shares to the first."""
    for k in range(len(order)):
        i = order[k]
        change = _change(starts, columns, values, y, w, lr, i)
        _await_turn(word, k * threads + thread)
        _apply(starts, columns, values, w, change, i)
        _add(word, 1)


LOOPS = {"free": _free, "locked": _locked, "round robin": _round_robin}
