"""Sandblaster L-BFGS: a coordinator that never sees a vector (Dean et al. 2012, section 4.2).

Rank 0 is the coordinator. Ranks 1 to `shards` hold the weights and all of L-BFGS's vectors in shards, and execute its
commands. The other ranks are replicas, which compute portions of the batch. A dot product is 32 bytes to each shard and
8 back, however long the vectors are. A replica fetches the weights once for each evaluation that it takes part in, and
sends the gradient of a portion only if its result counts.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from hpcdl.comm import Communicator, Request
from hpcdl.consistency.balancing import COMPUTE, END, FETCH, KEEP, NOTHING, ORDER, TASK, Dispatcher, Tasks
from hpcdl.consistency.lbfgs import GRADIENT, WEIGHTS, LocalVectors, minimise
from hpcdl.consistency.messages import check_weights, flat, shares

COMMAND, SCALAR, VECTOR = range(3)  # tags
DOT, SUM_OF_SIZES, LARGEST, COPY, ADD, SEND_TO, ADD_FROM, STOP = range(8)  # commands
Portion = Callable[[torch.Tensor, int], tuple[float, torch.Tensor]]  # (w, portion) -> its loss and gradient


class Minimised(NamedTuple):
    """The loss at each step (on the coordinator), and a shard's weights (empty elsewhere)."""

    losses: list[float]
    w: torch.Tensor


def sandblaster(
    comm: Communicator,
    w: torch.Tensor,
    gradient: Portion,
    portions: int,
    shards: int = 1,
    history: int = 10,
    lr: float = 1.0,
    tolerance: float = 1e-8,
    most: int = 200,
    backups: bool = True,
) -> Minimised:
    """Minimise the sum of `portions` parts of a loss, starting at the flat `w`; every rank calls this.

    `gradient(w, i)` gives the loss of portion i and its flat gradient. Portions go to any free worker. With `backups`,
    idle workers repeat unfinished portions, and the first result of each counts. For the other parameters see
    `lbfgs.minimise`. Raises ValueError if there are too few ranks for shards and replicas.
    """
    check_weights(w)
    if not 1 <= shards <= comm.size - 2 or portions < 1:
        raise ValueError(
            f"shards is {shards} and portions {portions} on {comm.size} ranks; there is a coordinator, a shard or "
            "more, and a replica or more, for a portion or more"
        )
    if comm.rank == 0:
        vectors = ShardedVectors(comm, shards)
        dispatcher = Dispatcher(comm, range(shards + 1, comm.size))
        batch = _Batch(vectors, dispatcher, portions, backups)
        losses = minimise(vectors, batch.evaluate, history, lr, tolerance, most)
        dispatcher.end()
        vectors.stop()
        return Minimised(losses, w[:0])
    if comm.rank <= shards:
        return Minimised([], _serve_shard(comm, shares(w.detach(), shards)[comm.rank - 1], w.numel(), shards))
    _run_replica(comm, w.detach().clone(), gradient, portions, shards)
    return Minimised([], w[:0])


# -- the coordinator --------------------------------------------------------------------------------------------------


class ShardedVectors:
    """`Vectors` whose elements are on ranks 1 to `shards` of `comm`: sends commands there, and receives scalars."""

    def __init__(self, comm: Communicator, shards: int):
        self.comm, self.shards = comm, range(1, shards + 1)
        self._sent: list[Request] = []

    def dot(self, a: int, b: int) -> float:
        return sum(self._query(DOT, a, b))

    def sum_of_sizes(self, a: int) -> float:
        return sum(self._query(SUM_OF_SIZES, a))

    def largest(self, a: int) -> float:
        return max(self._query(LARGEST, a))

    def copy(self, out: int, a: int, scale: float = 1.0) -> None:
        self._command(COPY, out, a, scale)

    def add(self, out: int, a: int, scale: float = 1.0) -> None:
        self._command(ADD, out, a, scale)

    def send_to(self, rank: int, a: int) -> None:
        """Let every shard send its part of vector a to `rank`."""
        self._command(SEND_TO, a, rank)

    def add_from(self, rank: int, out: int) -> None:
        """Let every shard add to its part of vector `out` the vector that `rank` sends."""
        self._command(ADD_FROM, out, rank)

    def stop(self) -> None:
        """Let the shards return."""
        self._command(STOP)
        self._wait()

    def _command(self, what: int, a: int = 0, b: int = 0, scale: float = 0.0) -> None:
        command = torch.tensor([what, a, b, scale], dtype=torch.float64)
        self._sent += [self.comm.isend(command, shard, COMMAND) for shard in self.shards]

    def _query(self, what: int, a: int, b: int = 0) -> list[float]:
        self._command(what, a, b)
        self._wait()
        found = torch.zeros(len(self.shards), dtype=torch.float64)
        for shard, scalar in zip(self.shards, found.split(1), strict=True):
            self.comm.recv(scalar, shard, SCALAR)
        return found.tolist()

    def _wait(self) -> None:
        for request in self._sent:
            request.wait()
        self._sent = []


class _Batch:
    """Evaluations of the loss and its gradient, in portions."""

    def __init__(self, vectors: ShardedVectors, dispatcher: Dispatcher, portions: int, backups: bool):
        self.vectors, self.dispatcher, self.portions, self.backups = vectors, dispatcher, portions, backups
        self._number = -1  # of this evaluation
        self._fetched: dict[int, int] = {}  # replica -> the evaluation for which it has weights

    def evaluate(self) -> float:
        self._number += 1
        self.vectors.copy(GRADIENT, GRADIENT, 0.0)
        tasks, losses = Tasks(self.portions, self.backups), [0.0] * self.portions
        self._assign(tasks)
        while not tasks.finished:
            replica, task, loss = self.dispatcher.next_report()
            number, portion = divmod(task, self.portions)
            if number == self._number and tasks.report(portion, replica):
                losses[portion] = loss
                self.vectors.add_from(replica, GRADIENT)
                self.dispatcher.order(replica, KEEP)
            self._assign(tasks)
        return sum(losses)  # in a fixed order, so the sum does not depend on timing

    def _assign(self, tasks: Tasks) -> None:
        for replica in list(self.dispatcher.free):
            if (portion := tasks.next_for(replica)) == NOTHING:
                continue
            fresh = self._fetched.get(replica) != self._number
            if fresh:
                self._fetched[replica] = self._number
                self.vectors.send_to(replica, WEIGHTS)
            self.dispatcher.order(replica, FETCH if fresh else COMPUTE, self._number * self.portions + portion)


# -- the shards and the replicas --------------------------------------------------------------------------------------


def _serve_shard(comm: Communicator, share: torch.Tensor, numel: int, shards: int) -> torch.Tensor:
    """Execute the coordinator's commands on this shard's vectors until STOP; return its share of the weights."""
    vectors, command = LocalVectors(share.numel(), share.dtype), torch.zeros(4, dtype=torch.float64)
    vectors[WEIGHTS].copy_(share)
    incoming = torch.zeros_like(share)
    while True:
        comm.recv(command, 0, COMMAND)
        what, a, b = map(int, command[:3].tolist())
        scale = command[3].item()
        if what in (DOT, SUM_OF_SIZES, LARGEST):
            scalar = _reduction(vectors, what, a, b)
            comm.send(torch.tensor([scalar], dtype=torch.float64), 0, SCALAR)
        elif what == COPY:
            vectors.copy(a, b, scale)
        elif what == ADD:
            vectors.add(a, b, scale)
        elif what == SEND_TO:
            comm.send(vectors[a], b, VECTOR)
        elif what == ADD_FROM:
            comm.recv(incoming, b, VECTOR)
            vectors[a].add_(incoming)
        else:
            return vectors[WEIGHTS]


def _reduction(vectors: LocalVectors, what: int, a: int, b: int) -> float:
    if what == DOT:
        return vectors.dot(a, b)
    return vectors.sum_of_sizes(a) if what == SUM_OF_SIZES else vectors.largest(a)


def _run_replica(comm: Communicator, w: torch.Tensor, gradient: Portion, portions: int, shards: int) -> None:
    """Compute the portions that the coordinator assigns, until END."""
    order, report, found = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.float64), w
    while True:
        comm.recv(order, 0, ORDER)
        what, task = order.tolist()
        if what == END:
            return
        if what == KEEP:
            for shard, part in enumerate(shares(found, shards), 1):
                comm.send(part, shard, VECTOR)
            continue
        if what == FETCH:
            for shard, part in enumerate(shares(w, shards), 1):
                comm.recv(part, shard, VECTOR)
        report[0] = task
        report[1], found = gradient(w, task % portions)
        found = flat(found, w)
        comm.send(report, 0, TASK)
