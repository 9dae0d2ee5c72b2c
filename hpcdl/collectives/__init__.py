"""Collectives written only with send and receive, on any communicator of `hpcdl.comm`.

Each all-reduce is `f(x, comm, weight=1.0) -> None`: it sums `weight * x` over the ranks in place, for any number of
ranks and elements. `x` is a contiguous tensor, and ranks may have different weights. The order of the sum does not
change from run to run, and every rank ends with the same bits. A tensor that cannot be sent raises TypeError or
ValueError before the first message. Their parts are also collectives: `broadcast`, `reduce`, `reduce_scatter`,
`all_gather`. `scatter` and `gather` move one rank's chunks, and `all_to_all` moves rows from every rank to every other,
in equal or different numbers.

`ALL_REDUCE` has the plain forms of the lecture: send, receive, add. `FAST` has, under the same names, forms with
bit-identical results that use the machine's fastest operations: `FAST.get(name, ALL_REDUCE[name])`.
`fast_reduce_scatter` and `fast_all_gather` are the fast forms of the two halves of the ring.
"""

from hpcdl.collectives.all_gather import all_gather
from hpcdl.collectives.all_to_all import all_to_all
from hpcdl.collectives.broadcast import broadcast
from hpcdl.collectives.fast_parts import fast_all_gather, fast_reduce_scatter
from hpcdl.collectives.fast_ring import fast_hierarchical_all_reduce, fast_ring_all_reduce
from hpcdl.collectives.gather import gather
from hpcdl.collectives.hierarchical import hierarchical_all_reduce
from hpcdl.collectives.naive import naive_all_reduce
from hpcdl.collectives.parameter_server import parameter_server_all_reduce
from hpcdl.collectives.rabenseifner import rabenseifner_all_reduce
from hpcdl.collectives.recursive_doubling import recursive_doubling_all_reduce
from hpcdl.collectives.reduce import reduce
from hpcdl.collectives.reduce_scatter import reduce_scatter
from hpcdl.collectives.ring import ring_all_reduce
from hpcdl.collectives.scatter import scatter
from hpcdl.collectives.tree import tree_all_reduce

ALL_REDUCE = {
    "naive": naive_all_reduce,
    "ring": ring_all_reduce,
    "tree": tree_all_reduce,
    "recursive_doubling": recursive_doubling_all_reduce,
    "rabenseifner": rabenseifner_all_reduce,
    "parameter_server": parameter_server_all_reduce,
    "hierarchical": hierarchical_all_reduce,
}

FAST = {
    "ring": fast_ring_all_reduce,
    "hierarchical": fast_hierarchical_all_reduce,
}

__all__ = [
    "ALL_REDUCE",
    "FAST",
    "all_gather",
    "all_to_all",
    "broadcast",
    "fast_all_gather",
    "fast_hierarchical_all_reduce",
    "fast_reduce_scatter",
    "fast_ring_all_reduce",
    "gather",
    "hierarchical_all_reduce",
    "naive_all_reduce",
    "parameter_server_all_reduce",
    "rabenseifner_all_reduce",
    "recursive_doubling_all_reduce",
    "reduce",
    "reduce_scatter",
    "ring_all_reduce",
    "scatter",
    "tree_all_reduce",
]
