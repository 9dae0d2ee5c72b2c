"""Garbled messages: an answer that stays right did not get its data from messages.

A rank may get data around `comm`: by a lock on a file, or by anything that one process can notice of another. Counted
bytes prove nothing then, since they may hold anything. So a check runs once with numbers that change in transit
(`checks.messages.carried`): an answer that is right about data that was never delivered fails.
"""

from typing import Any

import torch

from hpcdl.comm import Communicator


def garbled(comm: Communicator, rng: torch.Generator | None) -> None:
    """Let `rng`, if given, draw the floating-point numbers that this rank of the machine receives."""
    if rng is None:
        return
    machine: Any = comm  # its methods are replaced
    wait, wait_any, broadcast, all_reduce = comm._wait, comm._wait_any, comm._broadcast, comm._all_reduce

    def waited(op, *requests):
        wait(op, *requests)
        for request in requests:
            if request.side == "source":
                redraw(request.x, rng)

    def waited_any(op, requests):
        first = wait_any(op, requests)
        if requests[first].side == "source":
            redraw(requests[first].x, rng)
        return first

    def broadcast_to_all(x, root):
        broadcast(x, root)
        if comm.rank != root:
            redraw(x, rng)

    def reduced(x):
        all_reduce(x)
        redraw(x, rng)

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
