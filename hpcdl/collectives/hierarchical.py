"""The hierarchical all-reduce: sum inside each node, then between one rank per node, then spread inside again."""

from collections.abc import Callable

import torch

from hpcdl.collectives.broadcast import broadcast
from hpcdl.collectives.chunks import weigh
from hpcdl.collectives.reduce import reduce
from hpcdl.collectives.ring import ring_all_reduce
from hpcdl.comm import Communicator, Group


def hierarchical_all_reduce(
    x: torch.Tensor,
    comm: Communicator,
    weight: float = 1.0,
    *,
    per_node: int = 4,
    between: Callable[[torch.Tensor, Communicator], None] = ring_all_reduce,
) -> None:
    """Sum `weight * x` over the ranks in place; ranks 0 to `per_node`-1 are the first node, and so on.

    `reduce` to each node's first rank, `between` over those, `broadcast` in each node; the last node may be smaller.
    With g nodes of k ranks and a ring: 2(p-g) messages of n bytes inside, 2(g-1) of about n/g bytes per leader between:
    ceil(log2 k) (2 alpha + 2 n beta + n gamma) + 2(g-1) alpha + 2(g-1)/g n beta + (g-1)/g n gamma.
    Raises ValueError for `per_node` < 1 (Jia et al. 2018, "Highly scalable deep learning training system with
    mixed-precision: training ImageNet in four minutes").
    """
    comm.check_tensor("hierarchical_all_reduce", "x", x)
    if per_node < 1:
        raise ValueError(f"per_node is {per_node}; a node has one rank or more")
    first = comm.rank - comm.rank % per_node
    node = Group(comm, range(first, min(first + per_node, comm.size)))
    x = weigh(x, weight)
    reduce(x, node)
    if node.rank == 0:
        between(x, Group(comm, range(0, comm.size, per_node)))
    broadcast(x, node)
