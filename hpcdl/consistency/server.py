"""A parameter server: it owns a share of the weights, applies gradients on arrival, and delays workers that are too far
ahead.

Li et al. 2014 (parameter server), Ho et al. 2013 (the staleness threshold).
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import nn

from hpcdl.comm import Communicator, Request
from hpcdl.consistency.clock import ASP, check_staleness
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
    shares,
)
from hpcdl.consistency.snapshots import Snapshots

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Update(NamedTuple):
    """A gradient on arrival: its worker, how many iterations the worker had finished, and its age.

    `staleness` is tau, the number of other workers' gradients applied since this worker's pull; `lead` is how many
    iterations the worker was ahead of the slowest when it got the weights.
    """

    worker: int
    clock: int
    staleness: int
    lead: int


@dataclass
class Served:
    """A server's result: its share `w`, its log of updates, and the lost workers with reasons."""

    w: torch.Tensor
    log: list[Update] = field(default_factory=list)
    lost: dict[int, str] = field(default_factory=dict)


@dataclass(eq=False)
class _Worker:
    """A server's state of a worker."""

    rank: int
    clock: int = 0  # iterations that it has finished
    pushes: int = 0
    others: int = 0  # gradients of others applied before its last pull
    lead: int = 0
    last_seen: float = math.inf  # when it last sent a request or was sent the weights; inf before
    header: torch.Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.int64))


class Server:
    """Rank `comm.rank`, below `servers`, serves its share of the flat weights `w` to the ranks from `servers` on.

    `make(params)` gives one of torch's optimizers that work elementwise; a gradient g of any worker is one step of it,
    w -= lr g for SGD, with no mean over workers (deck 001, ASP and SSP). At staleness 0 it is one step for the sum over
    all workers (BSP; for the lecture's mean take lr / workers). A pull is answered once the worker is at most
    `staleness` iterations ahead of the slowest remaining one. With `snapshots`, a folder, the state is saved after
    every `every` updates, and a server that finds a snapshot continues from it. A worker that has its weights and is
    silent for more than `patience` seconds of `comm.clock`, while others are not, is lost.
    """

    def __init__(
        self,
        comm: Communicator,
        w: torch.Tensor,
        make: Make,
        servers: int = 1,
        staleness: float = ASP,
        snapshots: str | None = None,
        every: int = 100,
        patience: float = math.inf,
    ):
        check_weights(w)
        if not patience > 0:
            raise ValueError(f"patience is {patience}; give more seconds than the longest gradient takes")
        share = shares(w.detach(), check_servers(servers, comm, serves=True))[comm.rank]
        self.comm, self.staleness, self.patience = comm, check_staleness(staleness), patience
        self.w = nn.Parameter(comm.empty(share.numel(), share.dtype).copy_(share))
        self.optimizer = make([self.w])
        self.updates = 0
        self._served = Served(self.w.detach())
        self._gradient, self._sum = torch.empty_like(share), torch.zeros_like(share if not staleness else share[:0])
        self._summed = False  # whether the sum has a gradient in it
        self._round = 0  # at staleness 0: iterations that are in the weights
        self._workers = {rank: _Worker(rank) for rank in range(servers, comm.size)}
        self._requests: dict[int, Request] = {}  # of the workers that are still there
        self._answers: dict[int, Request] = {}  # under way
        self._held: dict[int, _Worker] = {}  # those that wait for the weights
        self._finished = Counter(dict.fromkeys([0], len(self._workers)))  # workers still there, by their clock
        self._answered: float = -1  # the slowest's iterations when all that were held were looked at
        self._slowest: float = 0  # iterations that every worker has finished that is still there
        self._snapshots = None if snapshots is None else Snapshots(snapshots, every, comm.rank, servers)
        self._resume()

    def serve(self) -> Served:
        """Answer requests until every worker has finished or is lost.

        A worker that reports its failure is lost, and so is one that is silent until a wait raises TimeoutError
        (`MPIComm(timeout=...)`), or for `patience`: the others continue without it. Give workers a longer timeout than
        servers, since they may be delayed while their server waits for another worker. Raises RuntimeError when no
        worker is left.
        """
        for rank in self._workers:
            self._expect_request(rank)
        while self._requests:
            self._receive_request()
            if self.staleness == 0:
                self._end_round()
            self._send_weights()
        self._wait_for_sends()
        if len(self._served.lost) == len(self._workers):
            raise RuntimeError(f"server {self.comm.rank}: every worker is lost: {self._served.lost}; see the first")
        return self._served

    # -- requests ---------------------------------------------------------------------------------------------------

    def _expect_request(self, rank: int) -> None:
        self._requests[rank] = self.comm.irecv(self._workers[rank].header, rank, REQUEST)

    def _receive_request(self) -> None:
        """Receive and handle the next request; among several, the worker that was silent longest comes first."""
        ranks = list(self._requests)
        try:
            rank = ranks[self.comm.wait_any(list(self._requests.values()))]
        except TimeoutError as error:
            for silent in [rank for rank in ranks if rank not in self._held]:
                self._lose(silent, f"nothing was heard of it: {error}")
            return
        del self._requests[rank]
        self._workers[rank].last_seen = self.comm.clock()
        self._handle(self._workers[rank])
        self._drop_silent()

    def _drop_silent(self) -> None:
        """Drop a worker that has been silent for too long. Requests are ordered by `last_seen`."""
        rank = next((rank for rank in self._requests if rank not in self._held), None)
        if rank is not None and (silent := self.comm.clock() - self._workers[rank].last_seen) > self.patience:
            self._lose(rank, f"nothing was heard of it for {silent:.3g} s")

    def _handle(self, worker: _Worker) -> None:
        what, clock = worker.header.tolist()
        if what & PUSH and not self._receive_gradient(worker, clock):
            return
        if what & HELLO:
            self.comm.send(torch.tensor([worker.clock]), worker.rank, CLOCK)
        if what & PULL:
            self._held[worker.rank] = worker
        if what & LOST:
            self._lose(worker.rank, "it failed, and said so")
        elif what & STOP:
            self._leave(worker.rank)
        else:
            self._expect_request(worker.rank)

    def _receive_gradient(self, worker: _Worker, clock: int) -> bool:
        """Receive a gradient; return False if the worker was lost before it arrived. A known gradient is ignored."""
        try:
            self.comm.recv_with(partial(self._apply, worker, clock), self._gradient, worker.rank, GRADIENT)
        except TimeoutError as error:
            self._lose(worker.rank, f"its gradient did not come: {error}")
            return False
        return True

    def _apply(self, worker: _Worker, clock: int, gradient: torch.Tensor) -> None:
        if clock <= worker.clock:  # it is from before the snapshot
            return
        staleness = self.updates - worker.pushes - worker.others if self.staleness else 0  # BSP: all step together
        self._served.log.append(Update(worker.rank, clock, staleness, worker.lead))
        self._advance(worker, clock)
        worker.pushes += 1
        self.updates += 1
        if self.staleness == 0:
            self._sum += gradient
            self._summed = True
        else:
            self._step(gradient)

    def _lose(self, rank: int, why: str) -> None:
        self._leave(rank)
        self._served.lost[rank] = why
        done = self._workers[rank].clock
        print(f"server {self.comm.rank}: worker {rank} is lost after {done} iterations: {why}", flush=True)

    # -- progress of workers ----------------------------------------------------------------------------------------

    def _advance(self, worker: _Worker, clock: int) -> None:
        """Count a worker's iterations, and track the slowest without checking all of a thousand workers."""
        self._finished[worker.clock] -= 1
        worker.clock = clock
        self._finished[clock] += 1
        self._find_slowest()

    def _leave(self, rank: int) -> None:
        """Remove this worker, so that no one waits for it."""
        self._requests.pop(rank, None)
        self._held.pop(rank, None)
        self._finished[self._workers[rank].clock] -= 1
        self._find_slowest()

    def _find_slowest(self) -> None:
        self._finished += Counter()  # drops those that are 0
        if self._slowest not in self._finished:
            self._slowest = min(self._finished, default=math.inf)

    # -- the weights ------------------------------------------------------------------------------------------------

    def _step(self, gradient: torch.Tensor) -> None:
        self._wait_for_sends()
        self.w.grad = gradient
        self.optimizer.step()
        self.w.grad = None  # it may be the worker's memory
        if self._snapshots is not None:
            self._snapshots.save(self.updates, self._state())

    def _end_round(self) -> None:
        """Take one step for the sum once all workers have pushed or finished."""
        if self._slowest > self._round and self._summed:
            self._step(self._sum)
            self._sum.zero_()
            self._summed = False
            self._round = int(min(self._slowest, max(worker.clock for worker in self._workers.values())))

    def _send_weights(self) -> None:
        """Send the weights to waiting workers that are not too far ahead.

        While the slowest has not advanced, only the latest request can be new among them.
        """
        newest = islice(reversed(self._held.values()), 1)
        waiting = list(newest if self._slowest == self._answered else self._held.values())
        self._answered = self._slowest
        for worker in waiting:
            lead = worker.clock - int(self._slowest)
            if lead <= self.staleness:
                del self._held[worker.rank]
                worker.lead = lead
                worker.others, worker.last_seen = self.updates - worker.pushes, self.comm.clock()
                self._send(worker, self.w.detach(), WEIGHTS)

    def _send(self, worker: _Worker, x: torch.Tensor, tag: int) -> None:
        self._answers[worker.rank] = self.comm.isend(x, worker.rank, tag)

    def _wait_for_sends(self) -> None:
        """Wait until answered workers have received the weights, which are sent without a copy.

        They have sent a request, so they are ready to receive.
        """
        for rank, request in self._answers.items():
            try:
                request.wait()
            except TimeoutError as error:
                if rank in self._requests:
                    self._lose(rank, f"it does not take its weights: {error}")
        self._answers.clear()

    # -- snapshots --------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return {
            "w": self.w.detach(),
            "optimizer": self.optimizer.state_dict(),
            "clocks": {worker.rank: worker.clock for worker in self._workers.values()},
        }

    def _resume(self) -> None:
        state = self._snapshots and self._snapshots.load(list(self._workers), self.w.numel())
        if not state:
            return
        self.w.detach().copy_(state["w"])
        self.optimizer.load_state_dict(state["optimizer"])
        for rank, clock in state["clocks"].items():
            self._advance(self._workers[rank], clock)
        self._round = min(state["clocks"].values())
