"""Which tokens of a sequence are on which rank."""

from collections.abc import Callable

import torch

from hpcdl.parallel.shares import shares


def contiguous(length: int, p: int, rank: int) -> torch.Tensor:
    """Neighbouring tokens: with a causal mask the last rank has the most work, and the first the least."""
    sizes = shares(length, p)
    return torch.arange(sum(sizes[:rank]), sum(sizes[: rank + 1]), device="cpu")


def striped(length: int, p: int, rank: int) -> torch.Tensor:
    """Tokens rank, rank + p, ...: all ranks have nearly equal work (Brandon et al. 2023, "Striped attention")."""
    return torch.arange(length, device="cpu")[rank::p]


ORDERS: dict[str, Callable[[int, int, int], torch.Tensor]] = {"contiguous": contiguous, "striped": striped}


def positions(order: str, length: int, p: int, rank: int) -> torch.Tensor:
    """Return the positions of this rank's tokens in the whole sequence, ascending; raise ValueError for an unknown
    order.

    They are on the processor, which decides by them. In all orders the ranks' numbers of tokens are `shares(length,
    p)`.
    """
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; the orders are {', '.join(ORDERS)}")
    return ORDERS[order](length, p, rank)
