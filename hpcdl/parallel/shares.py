"""Who has what of a tensor that is cut: neighbouring pieces in the order of the ranks, whose sizes differ by one."""

import torch

from hpcdl.comm import Communicator


def shares(n: int, p: int) -> list[int]:
    """The sizes of p shares of n: the first n mod p are one larger, as those of `tensor_split`."""
    return [n // p + (r < n % p) for r in range(p)]


def share(x: torch.Tensor, comm: Communicator, dim: int = 0) -> torch.Tensor:
    """This rank's share of `x` along `dim`, in memory of its own, so that the whole may be freed."""
    return x.detach().tensor_split(comm.size, dim)[comm.rank].clone(memory_format=torch.contiguous_format)
