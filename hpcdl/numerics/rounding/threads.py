"""Threads of our own: each with a row of the elements, and torch in it on one."""

import contextlib
import threading
from collections.abc import Callable

import torch


@contextlib.contextmanager
def one_thread():
    """Torch on one thread, and then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_rows(work: Callable[[int, int], None], n: int, rows: int) -> None:
    """Call `work(first, last)` for `rows` rows of n things, one after another in memory, each in a thread of its own.

    The first of them is the caller's. Threads of our own serve Numba too: its own are lost in a forked process, and
    clash with the OpenMP of torch. An exception in a row is raised when all have ended.
    """
    ends = [n * row // rows for row in range(rows + 1)]
    raised: list[BaseException] = []

    def guarded(first: int, last: int) -> None:
        try:
            work(first, last)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=ends[i : i + 2]) for i in range(1, rows)]
    for thread in threads:
        thread.start()
    guarded(*ends[:2])
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
