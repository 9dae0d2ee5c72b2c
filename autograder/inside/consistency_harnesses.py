"""Harnesses (see `harnesses`) of asynchronous training: gradients a w + c that take time, and what workers saw of w."""

from collections.abc import Callable
from typing import Any

import torch

from hpcdl.comm.base import Communicator


class Gradient:
    """`grad(w, k)` is a w + c[k] and takes seconds[k]; `seen` has the w of every call."""

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
    """Train with this rank's gradient: what the student's function returned, and the w that its gradients saw."""
    gradient = Gradient(a, c, seconds, comm)
    returned = train(comm, gradient, w, *rest)
    return returned, gradient.seen


def downpour(
    train: Callable, a: float, c: torch.Tensor, seconds: list, w: torch.Tensor, servers: int, rest: list,
    comm: Communicator,
):  # fmt: skip
    """The same for a function whose servers are several."""
    gradient = Gradient(a, c, seconds, comm)
    returned = train(comm, servers, gradient, w, *rest)
    return returned, gradient.seen


def comm_first(function: Callable, *args: Any):
    """For a function whose first argument is the communicator, as the server's is."""
    *rest, comm = args
    return function(comm, *rest)
