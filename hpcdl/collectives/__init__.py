"""All-reduce algorithms written with send and receive alone, on any communicator of `hpcdl.comm`.

Each is `f(x, comm) -> None`: it sums the contiguous tensor `x` over the ranks, in place, for any number of ranks >= 1 and any
number of elements, in an order that does not change from run to run; every rank ends with the same bits.
"""

from hpcdl.collectives.naive import naive_all_reduce
from hpcdl.collectives.ring import ring_all_reduce

ALL_REDUCE = {"naive": naive_all_reduce, "ring": ring_all_reduce}

__all__ = ["ALL_REDUCE", "naive_all_reduce", "ring_all_reduce"]
