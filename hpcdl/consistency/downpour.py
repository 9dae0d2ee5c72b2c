"""Downpour SGD: replicas that fetch weights and push gradients every few steps (Dean et al. 2012, algorithm 7.1).

The servers are `hpcdl.consistency.Server` with Adagrad; its sums of squares are stored with each server's share:

    Server(comm, w, adagrad(lr), servers).serve()

Shards of one set of weights may be out of step with each other; that is the method, not a fault.
"""

from collections.abc import Callable

import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.consistency.messages import flat
from hpcdl.consistency.server import Make
from hpcdl.consistency.worker import Worker


def adagrad(lr: float) -> Make:
    """Adagrad for a server's share: w_i -= lr g_i / sqrt(sum of all g_i^2 so far) (Duchi et al. 2011)."""

    def make(params: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(params, lr)

    return make


def downpour(
    comm: Communicator,
    w: torch.Tensor,
    gradient: Callable[[torch.Tensor, int], torch.Tensor],
    steps: int,
    servers: int = 1,
    n_fetch: int = 1,
    n_push: int = 1,
    lr: float = 0.0,
) -> torch.Tensor:
    """Run one replica for `steps` iterations of `gradient(w, k)`; return its final weights.

    Weights are fetched before iterations 0, n_fetch, 2 n_fetch, ...; the sum of the gradients since the last push is
    pushed after each n_push, and at the end. Between fetches the replica takes local steps with `lr` (0: none).
    It sends and receives ceil(steps / n_push) + ceil(steps / n_fetch) times the bytes of w. Raises ValueError where
    n_fetch or n_push is below 1.
    """
    for name, value in {"n_fetch": n_fetch, "n_push": n_push}.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; it counts iterations, 1 or more")
    total, since = torch.zeros_like(w), 0
    with Worker(comm, w, servers) as worker:  # which has fetched once
        first = worker.clock
        for k in range(first, steps):
            if k > first and k % n_fetch == 0:
                worker.pull()
            g = flat(gradient(worker.w, k), worker.w)
            total, since = total + g, since + 1
            worker.w.sub_(g, alpha=lr)
            if (k + 1) % n_push == 0 or k + 1 == steps:
                worker.push(total, since)
                total, since = torch.zeros_like(w), 0
        return worker.w
