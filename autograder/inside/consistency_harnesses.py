"""Harnesses (see `harnesses`) of asynchronous training: gradients a w + c that take time, and the w that workers
saw."""

from collections.abc import Callable
from typing import Any

import torch

from hpcdl.comm.base import Communicator

from .doors import opaque


def timed_gradient(a: float, c: torch.Tensor, seconds: list, comm: Communicator) -> tuple[Callable, list]:
    """Return `grad(w, k)`, which gives a w + c[k], takes seconds[k] and shows neither; and the list of its w."""
    seen: list[torch.Tensor] = []
    compute = comm.compute

    def grad(w: torch.Tensor, k: int) -> torch.Tensor:
        seen.append(w.detach().clone())
        compute(seconds[k])
        return a * w + c[k]

    return opaque(grad), seen


def asynchronous(
    train: Callable, a: float, c: torch.Tensor, seconds: list, w: torch.Tensor, rest: list, comm: Communicator
):
    """Train with this rank's gradient; return the student function's result, and the w that its gradients saw."""
    gradient, seen = timed_gradient(a, c, seconds, comm)
    returned = train(comm, gradient, w, *rest)
    return returned, seen


def downpour(
    train: Callable, a: float, c: torch.Tensor, seconds: list, w: torch.Tensor, servers: int, rest: list,
    comm: Communicator,
):  # fmt: skip
    """Train with a function for several servers."""
    gradient, seen = timed_gradient(a, c, seconds, comm)
    returned = train(comm, servers, gradient, w, *rest)
    return returned, seen


def comm_first(function: Callable, *args: Any):
    """Call a function whose first argument is the communicator, like the server's."""
    *rest, comm = args
    return function(comm, *rest)
