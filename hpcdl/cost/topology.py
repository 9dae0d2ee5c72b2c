"""How ranks are connected, and how long an all-reduce takes over such a network.

Each has `all_reduce(p, groups=1)`: a function of bytes to seconds for an all-reduce over p ranks.
"""

from collections.abc import Callable
from typing import NamedTuple

from hpcdl.cost import collectives


class Link(NamedTuple):
    """Seconds per message and per byte."""

    alpha: float
    beta: float

    def reaching(self, share: float) -> "Link":
        """A link that reaches only `share` of its bytes per second."""
        return Link(self.alpha, self.beta / share)


# Seconds that a host takes for each byte besides the wire, by one TCP connection: to copy it, and in gloo to add it.
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
    algorithm: str = "ring"  # between the nodes: a name of `cost.collectives.ALL_REDUCE`
    pipelined: bool = False  # whether the phases within nodes hide behind the one between them, or the other way round
    cards: int = 1  # network cards that share the link `between`; a rank's message goes through one

    def all_reduce(self, p: int, groups: int = 1) -> Callable[[int], float]:
        """Bytes to seconds for an all-reduce over `p` ranks: reduce-scatter in the nodes, between them, all-gather.

        With `groups` > 1 so many of them run side by side, as in model parallelism of that width: each group has
        per_node / groups of a node's ranks, and they share its link. Raises ValueError for more groups than ranks, and
        for an unknown `algorithm`.
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
        """Seconds of a message between two nodes, of which each of so many ranks sends a part."""
        return self.between.alpha + nbytes * self.between.beta * max(1.0, self.cards / senders)

    def reaching(self, share: float) -> "Nodes":
        """The same with links that reach only `share` of their bytes per second."""
        return self._replace(within=self.within.reaching(share), between=self.between.reaching(share))


class Torus(NamedTuple):
    """`columns` ranks in each row of a grid whose rows and columns close into rings; with `closed` False, a mesh.

    A ring of n ranks on the line of a mesh visits every second rank on its way there and the others on its way back:
    no link carries two messages the same way, but a message takes two hops. A torus sends both ways round at once.
    """

    columns: int
    link: Link  # each way between neighbours
    closed: bool = True

    def all_reduce(self, p: int, groups: int = 1) -> Callable[[int], float]:
        """Reduce-scatter along the rows and then the columns, and all-gather back.

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
        """Seconds of a message between neighbours."""
        return self.link.alpha + nbytes * self.link.beta

    def reaching(self, share: float) -> "Torus":
        """The same with links that reach only `share` of their bytes per second."""
        return self._replace(link=self.link.reaching(share))


# Seconds that a worker takes for each byte that it sends to a server and gets back, besides the link: from the
# accelerator to the host's memory, into messages, and back. Caffe with parameter servers on one node (Zhang et al.
# 2017): 20 iterations of 916 MB take 16 s longer than without.
STAGING = 16 / 20 / 916e6


class ParameterServers(NamedTuple):
    """`servers` ranks beside the workers, each with a share of the weights; all have links of one kind.

    `per_node` workers of a node sum their gradients first, over links `within`. `staging` is a worker's own seconds for
    each byte. `largest` is the share of the weights that the fullest server has, where servers hold whole layers.
    """

    servers: int
    link: Link
    staging: float = STAGING
    largest: float = 0.0
    per_node: int = 1
    within: Link = Link(0.0, 0.0)

    def all_reduce(self, p: int, groups: int = 1) -> Callable[[int], float]:
        """2 alpha + 2 max(1, p / servers) n beta: p workers push gradients and pull weights; the busiest link counts.

        With as many servers as workers a worker's own link is the limit; with one it is the lecture's parameter server
        (which counts N - 1 workers, as its server is one of N). With `largest` p * largest takes the place of p /
        servers, and p is the nodes where there are `per_node`.
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
        """Seconds of a message over one link."""
        return self.link.alpha + nbytes * self.link.beta

    def reaching(self, share: float) -> "ParameterServers":
        """The same with links that reach only `share` of their bytes per second."""
        return self._replace(link=self.link.reaching(share))


Network = Nodes | Torus | ParameterServers


def _smooth_ring(p, nbytes, alpha, beta) -> float:
    return 2 * (p - 1) * alpha + 2 * (p - 1) / p * nbytes * beta
