"""The parts of a split tensor: adjacent pieces in the order of the ranks, with sizes that differ by at most one."""

import torch

from hpcdl.comm import Communicator


def shares(n: int, p: int) -> list[int]:
    """Return the sizes of p shares of n: the first n mod p are one larger, as in `tensor_split`."""
    return [n // p + (r < n % p) for r in range(p)]


def share(x: torch.Tensor, comm: Communicator, dim: int = 0) -> torch.Tensor:
    """Return this rank's share of `x` along `dim`, in separate memory, so that the whole can be freed."""
    return x.detach().tensor_split(comm.size, dim)[comm.rank].clone(memory_format=torch.contiguous_format)
