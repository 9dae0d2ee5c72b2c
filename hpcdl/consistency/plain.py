"""A parameter server in one sitting: rank 0 has the weights, the others compute gradients, and some may be ahead.

In each iteration a worker sends its gradient, and the server subtracts it as soon as it comes. The worker gets weights
back once it is at most `staleness` iterations ahead of the slowest worker: 0 is bulk-synchronous (BSP: all wait for
all), infinity asynchronous (ASP: no worker waits), and a number between stale-synchronous (SSP; Ho et al. 2013, "More
effective distributed ML via a stale synchronous parallel parameter server"). `server.py` is the class to use: it has
several servers, any optimizer, snapshots, and workers that fail.
"""

from collections.abc import Callable

import torch

from hpcdl.comm import Communicator


def serve(w: torch.Tensor, comm: Communicator, lr: float, steps: int, staleness: float) -> list[int]:
    """Be rank 0: subtract `lr` times each gradient from `w`, flat, in place; return each update's worker, in order."""
    done = dict.fromkeys(range(1, comm.size), 0)  # iterations that each worker has finished
    gradients = {worker: torch.empty_like(w) for worker in done}
    expected = {worker: comm.irecv(gradients[worker], worker) for worker in done}
    waiting, log = list(done), []  # at first every worker waits for the weights
    while expected or waiting:
        for worker in [worker for worker in waiting if done[worker] - min(done.values()) <= staleness]:
            comm.send(w, worker)
            waiting.remove(worker)
        if expected:
            worker = list(expected)[comm.wait_any(list(expected.values()))]
            w -= lr * gradients[worker]
            log.append(worker)
            done[worker] += 1
            if done[worker] < steps:
                expected[worker] = comm.irecv(gradients[worker], worker)
                waiting.append(worker)
            else:
                del expected[worker]
    return log


def work(
    w: torch.Tensor, comm: Communicator, gradient: Callable[[torch.Tensor, int], torch.Tensor], steps: int
) -> None:
    """Be a worker: send `gradient(w, k)` of iterations k = 0 to `steps` - 1; `w`, flat, is overwritten in each."""
    for k in range(steps):
        comm.recv(w, 0)
        comm.send(gradient(w, k), 0)
