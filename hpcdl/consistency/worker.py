"""A worker's side of the parameter servers: push gradients, pull weights."""

from collections.abc import Callable
from types import TracebackType

import torch

from hpcdl.comm import CommError, Communicator, Request
from hpcdl.consistency.messages import (
    CLOCK,
    GRADIENT,
    HELLO,
    LOST,
    PULL,
    PUSH,
    REQUEST,
    STOP,
    WEIGHTS,
    check_servers,
    check_weights,
    flat,
    shares,
)


class Worker:
    """`w`, flat, as the servers had it at the last pull; `clock` iterations are done.

        with Worker(comm, w, servers) as worker:
            while worker.clock < steps:
                worker.push_and_pull(gradient(worker.w, worker.clock))

    It begins with a pull, so `w` gives only the size and dtype; after a restart it begins with the `clock` that the
    servers remember. Its pulls contain its own pushes (read-my-writes). When the block ends, also by an error, it tells
    the servers, which continue without it. Raises CommError if a server does not answer.
    """

    def __init__(self, comm: Communicator, w: torch.Tensor, servers: int = 1):
        check_weights(w)
        self.comm, self.servers = comm, check_servers(servers, comm, serves=False)
        self.w = w.detach().clone()
        self._sent: list[Request] = []
        clocks = torch.zeros(servers, dtype=torch.int64)
        self.clock = 0
        self._request(HELLO, None, clocks, CLOCK)
        self.clock = int(clocks.min())
        self.pull()

    def pull(self) -> torch.Tensor:
        """Overwrite `w` with the servers' weights, once this worker is not too far ahead; returns it."""
        self._request(PULL, None, self.w, WEIGHTS)
        return self.w

    def push(self, gradient: torch.Tensor, iterations: int = 1) -> None:
        """Send the servers a gradient, the sum of that many `iterations`; leave it unchanged until the next call.

        It has one element for each of w's, in any shape and dtype. Raises TypeError or ValueError for another, and
        ValueError without an iteration.
        """
        gradient = self._count(gradient, iterations)
        self._request(PUSH, gradient)

    def push_and_pull(self, gradient: torch.Tensor, iterations: int = 1) -> torch.Tensor:
        """`push`, and `pull` in the same request."""
        gradient = self._count(gradient, iterations)
        self._request(PUSH | PULL, gradient, self.w, WEIGHTS)
        return self.w

    def close(self, lost: bool = False) -> None:
        """Tell the servers that this worker has finished, or failed."""
        self._request(LOST if lost else STOP)
        self._wait_for_sends()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(error, CommError):  # a server that does not answer needs no goodbye
            self.close(lost=error is not None)

    def _count(self, gradient: torch.Tensor, iterations: int) -> torch.Tensor:
        """Count the iterations of `gradient`, and return it as it is sent."""
        if not isinstance(iterations, int) or iterations < 1:
            raise ValueError(f"iterations is {iterations!r}; a gradient is of 1 iteration, or the sum of several")
        gradient = flat(gradient, self.w)
        self.clock += iterations
        return gradient

    def _request(
        self, what: int, gradient: torch.Tensor | None = None, out: torch.Tensor | None = None, tag: int = 0
    ) -> None:
        """Send the same request to every server, and receive their answers, if any, into their shares of `out`."""
        self._wait_for_sends()
        answers = []
        if out is not None:
            answers = [self.comm.irecv(part, server, tag) for server, part in enumerate(shares(out, self.servers))]
        request = torch.tensor([what, self.clock])
        self._sent = [self.comm.isend(request, server, REQUEST) for server in range(self.servers)]
        if gradient is not None:
            parts = shares(gradient, self.servers)
            self._sent += [self.comm.isend(part, server, GRADIENT) for server, part in enumerate(parts)]
        if answers:
            self._wait_for_sends()
        for answer in answers:
            self._wait(answer)

    def _wait_for_sends(self) -> None:
        for request in self._sent:
            self._wait(request)
        self._sent = []

    def _wait(self, request: Request) -> None:
        try:
            request.wait()
        except (TimeoutError, CommError) as error:
            raise CommError(
                f"rank {self.comm.rank}: server {request.peer} does not answer after {self.clock} iterations; start "
                f"all ranks again: servers that save snapshots continue from their last ({error})"
            ) from error


def work(
    comm: Communicator,
    w: torch.Tensor,
    gradient: Callable[[torch.Tensor, int], torch.Tensor],
    steps: int,
    servers: int = 1,
) -> torch.Tensor:
    """Run one worker's whole training, with `gradient(w, k)` for each iteration k; return its last weights."""
    with Worker(comm, w, servers) as worker:
        while worker.clock < steps:
            worker.push_and_pull(gradient(worker.w, worker.clock))
        return worker.w
