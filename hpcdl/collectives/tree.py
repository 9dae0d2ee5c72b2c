"""The tree all-reduce: up to the root and down again, log p rounds each way."""

import torch

from hpcdl.collectives.broadcast import broadcast
from hpcdl.collectives.chunks import weigh
from hpcdl.collectives.reduce import reduce
from hpcdl.comm import Communicator


def tree_all_reduce(x: torch.Tensor, comm: Communicator, weight: float = 1.0) -> None:
    """Sum `weight * x` over the ranks in place: `reduce` to rank 0, then `broadcast` from it.

    2(p-1) messages of n bytes in 2 ceil(log2 p) rounds: ceil(log2 p) (2 alpha + 2 n beta + n gamma).
    """
    comm.check_tensor("tree_all_reduce", "x", x)
    x = weigh(x, weight)
    reduce(x, comm)
    broadcast(x, comm)
