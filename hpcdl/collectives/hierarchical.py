"""The hierarchical all-reduce: sum inside each node, then between one rank per node, then spread inside again."""

import torch

from hpcdl.collectives.broadcast import broadcast
from hpcdl.collectives.reduce import reduce
from hpcdl.collectives.ring import ring_all_reduce
from hpcdl.comm import Group


def hierarchical_all_reduce(x: torch.Tensor, comm, per_node: int = 4) -> None:
    """Sum `x` over the ranks in place; ranks 0 to `per_node`-1 are the first node, and so on, the last may be smaller.

    `reduce` to each node's first rank, ring between those, `broadcast` in each node. With g nodes of k ranks: 2(p-g)
    messages of n bytes inside, 2(g-1) of about n/g bytes per leader between:
    ceil(log2 k) (2 alpha + 2 n beta + n gamma) + 2(g-1) alpha + 2(g-1)/g n beta + (g-1)/g n gamma.
    Raises ValueError for `per_node` < 1 (Jia et al. 2018, "Highly scalable deep learning training system with
    mixed-precision: training ImageNet in four minutes").
    """
    if per_node < 1:
        raise ValueError(f"per_node is {per_node}; a node has one rank or more")
    first = comm.rank - comm.rank % per_node
    node = Group(comm, range(first, min(first + per_node, comm.size)))
    reduce(x, node)
    if node.rank == 0:
        ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
    broadcast(x, node)
