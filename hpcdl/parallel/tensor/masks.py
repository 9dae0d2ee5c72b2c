"""Dropout of an activation that is cut over the ranks."""

import torch
from torch.nn import functional

from hpcdl.comm import Communicator
from hpcdl.parallel.shares import share, shares


def dropout(
    x: torch.Tensor, p: float, comm: Communicator, length: int, dim: int = -1, training: bool = True
) -> torch.Tensor:
    """Drop elements of `x`, this rank's share of `length` along `dim`, as one process drops those of the whole.

    torch's dropout would draw numbers for the share's shape: with one seed on all ranks, each share would get the same
    mask. Here every rank draws the mask of the whole and uses its part. Generators must be in the same state on all
    ranks; seed them alike. Raises ValueError where `x` is not this rank's share of `length`.
    """
    if x.shape[dim] != shares(length, comm.size)[comm.rank]:
        raise ValueError(
            f"rank {comm.rank}: dropout: x has {x.shape[dim]} along dimension {dim}; of {length} on {comm.size} ranks "
            f"its share is {shares(length, comm.size)[comm.rank]}"
        )
    if not training:
        return x
    shape = list(x.shape)
    shape[dim] = length
    return x * share(functional.dropout(x.new_ones(shape), p), comm, dim)
