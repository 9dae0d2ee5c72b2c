"""Harnesses (see `harnesses`) of asynchronous training: gradients a w + c that take time, and the w that workers
saw."""

from collections.abc import Callable
from typing import Any

import torch

from hpcdl.comm.base import Communicator


class TimedGradient:
    """`grad(w, k)` returns a w + c[k] and takes seconds[k]; `seen` lists the w of every call."""

    def __init__(self, a: float, c: torch.Tensor, seconds: list, comm: Communicator):
        self.a, self.c, self.seconds, self.comm = a, c, seconds, comm
        self.seen: list[torch.Tensor] = []

    def __call__(self, w: torch.Tensor, k: int) -> torch.Tensor:
        self.seen.append(w.detach().clone())
        self.comm.compute(self.seconds[k])
        return self.a * w + self.c[k]


def asynchronous(
    train: Callable, a: float, c: torch.Tensor, seconds: list, w: torch.Tensor, rest: list, comm: Communicator
):
    """Train with this rank's gradient; return the student function's result, and the w that its gradients saw."""
    gradient = TimedGradient(a, c, seconds, comm)
    returned = train(comm, gradient, w, *rest)
    return returned, gradient.seen


def downpour(
    train: Callable, a: float, c: torch.Tensor, seconds: list, w: torch.Tensor, servers: int, rest: list,
    comm: Communicator,
):  # fmt: skip
    """Train with a function for several servers."""
    gradient = TimedGradient(a, c, seconds, comm)
    returned = train(comm, servers, gradient, w, *rest)
    return returned, gradient.seen


def comm_first(function: Callable, *args: Any):
    """Call a function whose first argument is the communicator, like the server's."""
    *rest, comm = args
    return function(comm, *rest)
