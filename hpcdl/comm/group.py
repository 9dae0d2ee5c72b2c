"""A communicator of some of the ranks: a node, the leaders of all nodes, one stage of a pipeline."""

from collections.abc import Sequence

from hpcdl.comm.base import Communicator
from hpcdl.comm.wrapper import Wrapper


class Group(Wrapper):
    """The ranks `ranks` of `comm`, including this one, renumbered 0, 1, ... in that order.

    Deadlock reports and traces use the ranks of `comm`. A group supports only messages; for more, pass it to a function
    of `hpcdl.collectives`. Raises ValueError if ranks repeat, do not exist or do not include this one.
    """

    def __init__(self, comm: Communicator, ranks: Sequence[int]):
        super().__init__(comm)
        self.ranks = list(ranks)
        if len(set(self.ranks)) < len(self.ranks) or not set(self.ranks) <= set(range(comm.size)):
            raise ValueError(f"ranks is {self.ranks}; a group has each of its ranks once, out of 0 to {comm.size - 1}")
        if comm.rank not in self.ranks:
            raise ValueError(f"rank {comm.rank} is not among ranks {self.ranks}; only the members make a group")
        self.rank, self.size = self.ranks.index(comm.rank), len(self.ranks)

    def wrap(self, comm: Communicator) -> "Group":
        return Group(comm, self.ranks)

    def inner_rank(self, rank: int) -> int:
        return self.ranks[rank]

    def _channel(self) -> int:
        return self.channels.next_of(self)

    def _broadcast(self, x, root):
        raise self._no_collective("broadcast(x, group, root)")

    def _all_reduce(self, x):
        raise self._no_collective("ring_all_reduce(x, group)")

    def _barrier(self):
        raise self._no_collective("tree_all_reduce(torch.zeros(1), group)")

    def _no_collective(self, instead: str) -> NotImplementedError:
        return NotImplementedError(f"rank {self.comm.rank}: a Group has messages only; use hpcdl.collectives.{instead}")
