"""Garbled messages: an answer that stays right did not get its data from messages.

A rank may get data around `comm`: by a lock on a file, or by anything that one process can notice of another. Counted
bytes prove nothing then, since they may hold anything. So a check runs once with numbers that change in transit
(`checks.messages.carried`): an answer that is right about data that was never delivered fails.
"""

from typing import Any, NamedTuple

import torch

from hpcdl.comm import Communicator


class Garbling(NamedTuple):
    """What draws the new numbers, and the tag of the messages that get them; with None, all messages do."""

    rng: torch.Generator
    tag: int | None = None

    def changes(self, request: Any) -> bool:
        """Whether what this request receives changes."""
        return request.side == "source" and self.tag in (None, request.tag)

    def redraw(self, x: torch.Tensor) -> None:
        """Change what has arrived. With a tag, all bits of integers change: they may say a size in any unit."""
        if self.tag is None or x.is_floating_point() or x.is_complex():
            redraw(x, self.rng)
        else:
            x.bitwise_not_()


def garbled(comm: Communicator, garbling: Garbling | None) -> None:
    """Change the numbers that this rank of the machine receives, if `garbling` is given."""
    if garbling is None:
        return
    machine: Any = comm  # its methods are replaced
    wait, wait_any, broadcast, all_reduce = comm._wait, comm._wait_any, comm._broadcast, comm._all_reduce

    def waited(op, *requests):
        wait(op, *requests)
        for request in requests:
            if garbling.changes(request):
                garbling.redraw(request.x)

    def waited_any(op, requests):
        first = wait_any(op, requests)
        if garbling.changes(requests[first]):
            garbling.redraw(requests[first].x)
        return first

    def broadcast_to_all(x, root):
        broadcast(x, root)
        if comm.rank != root:
            garbling.redraw(x)

    def reduced(x):
        all_reduce(x)
        garbling.redraw(x)

    machine._wait, machine._wait_any = waited, waited_any
    machine._broadcast, machine._all_reduce = broadcast_to_all, reduced


def redraw(x: torch.Tensor, rng: torch.Generator) -> None:
    """Draw different numbers of similar size, all of them finite.

    Integers, which may be sizes or bits of other numbers, change by one.
    """
    flat = x.detach().view(-1)
    if x.is_floating_point() or x.is_complex():
        flat.nan_to_num_(0.0, 0.0, 0.0).mul_(torch.rand(flat.shape, generator=rng)).add_(torch.rand((), generator=rng))
    elif x.dtype == torch.bool:
        flat.logical_not_()
    else:
        flat.bitwise_xor_(torch.ones_like(flat))
