"""Sandblaster's load balancing: free nodes get small portions of a batch; at the end several nodes compute the same
portion.

Dean et al. 2012, section 4.2: nodes that finish get more; portions of slow nodes are also given to idle nodes, and the
first result counts.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import torch

from hpcdl.comm import Communicator, Request

TASK, ORDER = 4, 5  # tags: a worker's report, the coordinator's order
COMPUTE, FETCH, KEEP, END = range(4)  # orders: compute; fetch weights, then compute; send the gradient; end
NOTHING = -1


class Tasks:
    """The fresh, running and finished portions out of `number`; only the first result of a portion counts."""

    def __init__(self, number: int, backups: bool = True):
        self.backups = backups
        self.done_by: list[int | None] = [None] * number
        self._fresh = list(range(number))[::-1]
        self._under_way: dict[int, set[int]] = {}  # portion -> who computes it, the longest under way first

    @property
    def finished(self) -> bool:
        """Return whether every portion has been computed."""
        return None not in self.done_by

    def next_for(self, worker: int) -> int:
        """Return a fresh portion; otherwise, with backups, the one with the fewest copies under way; else NOTHING."""
        if self._fresh:
            task = self._fresh.pop()
        else:
            others = [task for task, workers in self._under_way.items() if worker not in workers]
            if not others or not self.backups:
                return NOTHING
            task = min(others, key=lambda task: len(self._under_way[task]))
        self._under_way.setdefault(task, set()).add(worker)
        return task

    def report(self, task: int, worker: int) -> bool:
        """Record a result; return whether it counts, as the first of its portion."""
        if self.done_by[task] is not None:
            return False
        self.done_by[task] = worker
        del self._under_way[task]
        return True


class Finish(NamedTuple):
    """The seconds until every portion was finished, and the node that computed each."""

    seconds: float
    done_by: list[int | None]


def finish(tasks: Sequence[float], speeds: Sequence[float], backups: bool = True) -> Finish:
    """Compute how long nodes of `speeds` (work per second) take for `tasks` (work), assigned in order by `Tasks`.

    With backups it is never later than without.
    """
    if not all(work >= 0 for work in tasks) or not all(speed > 0 for speed in speeds) or not speeds:
        raise ValueError(f"tasks are {tasks} and speeds {speeds}; work is 0 or more, and some node has a speed above 0")
    queue: list[tuple[float, int, int]] = []
    todo, now = Tasks(len(tasks), backups), 0.0
    idle = list(range(len(speeds)))
    while True:
        for node in idle:
            if (task := todo.next_for(node)) != NOTHING:
                heapq.heappush(queue, (now + tasks[task] / speeds[node], node, task))
        if todo.finished:
            return Finish(now, todo.done_by)
        now, node, task = heapq.heappop(queue)
        todo.report(task, node)
        idle = [node]


class Dispatcher:
    """Assign portions to `workers`, and receive their reports; the coordinator's side."""

    def __init__(self, comm: Communicator, workers: Sequence[int]):
        self.comm, self.free = comm, list(workers)
        self._reports = {worker: torch.zeros(2, dtype=torch.float64) for worker in workers}
        self._requests: dict[int, Request] = {}
        self._sent: dict[int, Request] = {}

    @property
    def busy(self) -> list[int]:
        """Return the workers whose report is still to come."""
        return list(self._requests)

    def next_report(self) -> tuple[int, int, float]:
        """Return the next report: worker, portion, value. The worker is then free."""
        worker = self.busy[self.comm.wait_any(list(self._requests.values()))]
        del self._requests[worker]
        self.free.append(worker)
        task, value = self._reports[worker].tolist()
        return worker, int(task), value

    def order(self, worker: int, what: int, task: int = NOTHING) -> None:
        """Tell a free worker what to do."""
        if worker in self._sent:
            self._sent[worker].wait()
        if what != KEEP:
            self.free.remove(worker)
        if what in (COMPUTE, FETCH):
            self._requests[worker] = self.comm.irecv(self._reports[worker], worker, TASK)
        self._sent[worker] = self.comm.isend(torch.tensor([what, task]), worker, ORDER)

    def end(self) -> None:
        """End all workers, busy ones after they have reported."""
        while self.free or self.busy:
            if not self.free:
                self.next_report()
            self.order(self.free[0], END)
        for request in self._sent.values():
            request.wait()
