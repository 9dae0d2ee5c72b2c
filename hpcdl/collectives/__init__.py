"""All-reduce algorithms written with send and receive alone, on any communicator of `hpcdl.comm`.

Each is `f(x, comm) -> None`: it sums the contiguous tensor `x` over the ranks, in place, for any number of ranks and
elements from 1, in an order that does not change from run to run; every rank ends with the same bits.
Their parts are collectives of their own: `broadcast`, `reduce`, `reduce_scatter`, `all_gather`.
"""

from hpcdl.collectives.all_gather import all_gather
from hpcdl.collectives.broadcast import broadcast
from hpcdl.collectives.hierarchical import hierarchical_all_reduce
from hpcdl.collectives.naive import naive_all_reduce
from hpcdl.collectives.parameter_server import parameter_server_all_reduce
from hpcdl.collectives.rabenseifner import rabenseifner_all_reduce
from hpcdl.collectives.recursive_doubling import recursive_doubling_all_reduce
from hpcdl.collectives.reduce import reduce
from hpcdl.collectives.reduce_scatter import reduce_scatter
from hpcdl.collectives.ring import ring_all_reduce
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

__all__ = [
    "ALL_REDUCE",
    "all_gather",
    "broadcast",
    "hierarchical_all_reduce",
    "naive_all_reduce",
    "parameter_server_all_reduce",
    "rabenseifner_all_reduce",
    "recursive_doubling_all_reduce",
    "reduce",
    "reduce_scatter",
    "ring_all_reduce",
    "tree_all_reduce",
]
