"""Some of the ranks as a communicator of their own: a node, the leaders of all nodes, one stage of a pipeline."""

from collections.abc import Sequence

import torch

from hpcdl.comm.base import Communicator


class Group(Communicator):
    """The ranks `ranks` of `comm`, this one among them, renumbered 0, 1, ... in that order.

    Deadlock reports and traces speak of the ranks of `comm`. A group has messages only: for more, give it to a function
    of `hpcdl.collectives`. Raises ValueError for ranks that repeat, do not exist or leave out this one.
    """

    def __init__(self, comm: Communicator, ranks: Sequence[int]):
        self.comm, self.ranks, self.devices = comm, list(ranks), comm.devices
        self.segment = comm.segment
        if len(set(self.ranks)) < len(self.ranks) or not set(self.ranks) <= set(range(comm.size)):
            raise ValueError(f"ranks is {self.ranks}; a group has each of its ranks once, out of 0 to {comm.size - 1}")
        if comm.rank not in self.ranks:
            raise ValueError(f"rank {comm.rank} is not among ranks {self.ranks}; only the members make a group")
        self.rank, self.size = self.ranks.index(comm.rank), len(self.ranks)

    def clock(self) -> float:
        return self.comm.clock()

    def empty(self, numel, dtype=torch.float32):
        return self.comm.empty(numel, dtype)

    def lends(self, x):
        return self.comm.lends(x)

    def background(self):
        from hpcdl.comm.background import Through  # has a Group itself

        return Through(self.comm.background(), lambda comm: Group(comm, self.ranks))

    def accumulate(self, out, x, weight=1.0):
        self.comm.accumulate(out, x, weight)

    def compute(self, seconds):
        self.comm.compute(seconds)

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        self.comm._sendrecv_add(x, self.ranks[dest], out, self.ranks[source], scratch, weight, tag)

    def _sendrecv_add_back(self, x, dest, out, source, scratch, weight, tag):
        self.comm._sendrecv_add_back(x, self.ranks[dest], out, self.ranks[source], scratch, weight, tag)

    def _isend(self, op, x, dest, tag):
        return self.comm._isend(op, x, self.ranks[dest], tag)

    def _irecv(self, op, out, source, tag):
        return self.comm._irecv(op, out, self.ranks[source], tag)

    def _wait(self, op, *requests):
        self.comm._wait(op, *requests)

    def _broadcast(self, x, root):
        raise self._no_collective("broadcast(x, group, root)")

    def _all_reduce(self, x):
        raise self._no_collective("ring_all_reduce(x, group)")

    def _barrier(self):
        raise self._no_collective("tree_all_reduce(torch.zeros(1), group)")

    def _no_collective(self, instead: str) -> NotImplementedError:
        return NotImplementedError(f"rank {self.comm.rank}: a Group has messages only; use hpcdl.collectives.{instead}")
