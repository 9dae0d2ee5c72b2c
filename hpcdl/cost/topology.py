"""Networks between ranks, and the time of an all-reduce over them.

Each has `all_reduce(p, groups=1)`, which returns a function from bytes to seconds for an all-reduce over p ranks.
"""

from collections.abc import Callable
from typing import NamedTuple

from hpcdl.cost import collectives


class Link(NamedTuple):
    """Seconds per message and per byte."""

    alpha: float
    beta: float

    def reaching(self, share: float) -> "Link":
        """Return a link that reaches only `share` of its bytes per second."""
        return Link(self.alpha, self.beta / share)


# Seconds of a host per byte of one TCP connection, in addition to the wire: to copy it, and in gloo to add it.
# NCCL 2.3.7 sums 2.06 GB/s over 32 Gb/s with one ring (NVIDIA/nccl, issue 209, 2019), gloo 20 MB of two processes in
# 17.251 ms over 40 Gb/s (pytorch/gloo, issue 248, 2020).
COPYING = {"nccl": 1 / 2.06e9 - 8 / 32e9, "gloo": 17.251e-3 / 20e6 - 8 / 40e9}


def tcp(rate: float, alpha: float, connections: int = 1, library: str = "nccl") -> Link:
    """Return a link of `rate` bytes per second as a library uses it over TCP: 1 / rate + copying / connections.

    A connection copies a part of a message and sends it in turn; several copy side by side, and share the wire. gloo
    has one connection between two ranks, NCCL as many as channels x NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD.
    Raises ValueError for no connection, or another library.
    """
    if library not in COPYING or connections < 1:
        raise ValueError(
            f"library is {library!r}, connections {connections}; it is one of {', '.join(COPYING)}, with one or more"
        )
    return Link(alpha, 1 / rate + COPYING[library] / connections)


class Nodes(NamedTuple):
    """Nodes of `per_node` ranks: `within` a node a link per rank, `between` nodes one per node, shared by its ranks."""

    per_node: int
    within: Link
    between: Link
    algorithm: str = "ring"  # between the nodes: a name in `cost.collectives.ALL_REDUCE`
    pipelined: bool = False  # whether phases within and between nodes overlap
    cards: int = 1  # network cards that share the link `between`; a rank's message goes through one

    def all_reduce(self, p: int, groups: int = 1) -> Callable[[int], float]:
        """Return a function from bytes to seconds for an all-reduce over `p` ranks: reduce-scatter in nodes, all-reduce
        between them, all-gather.

        With `groups` > 1 that many run in parallel, as in model parallelism of that width: each group has per_node /
        groups of a node's ranks, and they share its link. Raises ValueError for more groups than ranks, and for an
        unknown `algorithm`.
        """
        together = self.per_node // groups
        if not together:
            raise ValueError(f"groups is {groups}; a node has {self.per_node} ranks, so no more groups than that")
        inside, nodes = min(p, together), -(-p // together)
        formula = collectives.formula(self.algorithm)
        between = Link(self.between.alpha, self.between.beta * groups)

        def seconds(nbytes: int) -> float:
            phases = (
                collectives.ring(inside, nbytes, *self.within, itemsize=1),
                formula(nodes, nbytes, *between, itemsize=1),
            )
            return max(phases) if self.pipelined else sum(phases)

        return seconds

    def message(self, nbytes: int, senders: int = 1) -> float:
        """Return the seconds of a message between two nodes, split over this many ranks."""
        return self.between.alpha + nbytes * self.between.beta * max(1.0, self.cards / senders)

    def reaching(self, share: float) -> "Nodes":
        """Return this network with links that reach only `share` of their bytes per second."""
        return self._replace(within=self.within.reaching(share), between=self.between.reaching(share))


class Torus(NamedTuple):
    """A grid with `columns` ranks in each row; rows and columns close into rings unless `closed` is False (a mesh).

    A ring of n ranks on the line of a mesh visits every second rank on its way there and the others on its way back:
    no link carries two messages the same way, but a message takes two hops. A torus sends in both directions at once.
    """

    columns: int
    link: Link  # each way between neighbours
    closed: bool = True

    def all_reduce(self, p: int, groups: int = 1) -> Callable[[int], float]:
        """Return the time function: reduce-scatter along the rows and then the columns, and all-gather back.

        2 (x - 1) alpha + 2 (x - 1)/x n beta along rows of x ranks, and the same for columns of p/x ranks with n/x
        bytes; on a torus with half the beta, on a mesh with twice the alpha. Raises ValueError for rows not full.
        """
        x = min(self.columns, p)
        if p % x:
            raise ValueError(f"p is {p}; rows of {self.columns} ranks are full if p is a multiple of that")
        alpha, beta = self.link
        hop = (alpha, beta / 2) if self.closed else (2 * alpha, beta)
        return lambda nbytes: _smooth_ring(x, nbytes, *hop) + _smooth_ring(p // x, groups * nbytes / x, *hop)

    def message(self, nbytes: int, senders: int = 1) -> float:
        """Return the seconds of a message between neighbours."""
        return self.link.alpha + nbytes * self.link.beta

    def reaching(self, share: float) -> "Torus":
        """Return this network with links that reach only `share` of their bytes per second."""
        return self._replace(link=self.link.reaching(share))


# Seconds of a worker per byte sent to a server and returned, in addition to the link: from the
# accelerator to the host's memory, into messages, and back. Caffe with parameter servers on one node (Zhang et al.
# 2017): 20 iterations of 916 MB take 16 s longer than without.
STAGING = 16 / 20 / 916e6


class ParameterServers(NamedTuple):
    """`servers` ranks in addition to the workers, each with a share of the weights; all links are equal.

    `per_node` workers of a node sum their gradients first, over links `within`. `staging` is a worker's own seconds per
    byte. `largest` is the fullest server's share of the weights, if servers hold whole layers.
    """

    servers: int
    link: Link
    staging: float = STAGING
    largest: float = 0.0
    per_node: int = 1
    within: Link = Link(0.0, 0.0)

    def all_reduce(self, p: int, groups: int = 1) -> Callable[[int], float]:
        """2 alpha + 2 max(1, p / servers) n beta: p workers push gradients and pull weights; the busiest link counts.

        With as many servers as workers, a worker's own link is the limit; with one server it is the lecture's parameter
        server (which counts N - 1 workers, since its server is one of N). With `largest`, p * largest replaces p /
        servers; with `per_node`, p is the number of nodes.
        """
        if self.servers < 1:
            raise ValueError(f"servers is {self.servers}; there is one server or more")
        alpha, beta = self.link
        nodes, together = -(-p // self.per_node), min(p, self.per_node)
        share = max(1.0, nodes * (self.largest or 1 / self.servers)) * groups

        def seconds(nbytes: int) -> float:
            inside = collectives.ring(together, int(nbytes), *self.within, itemsize=1) if together > 1 else 0.0
            return 2 * alpha + 2 * share * nbytes * beta + self.staging * nbytes + inside

        return seconds if p > 1 else lambda nbytes: 0.0

    def message(self, nbytes: int, senders: int = 1) -> float:
        """Return the seconds of a message over one link."""
        return self.link.alpha + nbytes * self.link.beta

    def reaching(self, share: float) -> "ParameterServers":
        """Return this network with links that reach only `share` of their bytes per second."""
        return self._replace(link=self.link.reaching(share))


Network = Nodes | Torus | ParameterServers


def _smooth_ring(p, nbytes, alpha, beta) -> float:
    return 2 * (p - 1) * alpha + 2 * (p - 1) / p * nbytes * beta
