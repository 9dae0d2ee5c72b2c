"""Messages that arrive as other numbers: whoever is right all the same did not learn it by messages.

A rank may learn what it should be told beside `comm`: by a lock on a file, by whatever one process can notice of
another. Bytes that are counted prove nothing then, since they may hold anything. So a check asks once with numbers
that change on their way (`checks.messages.carried`): an answer that is right about what was never delivered fails.
"""

from typing import Any

import torch

from hpcdl.comm import Communicator


def garbled(comm: Communicator, rng: torch.Generator | None) -> None:
    """Let `rng`, if there is one, draw the floating-point numbers that this rank of the machine receives."""
    if rng is None:
        return
    machine: Any = comm  # whose methods are replaced
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
    """Other numbers of about the same size: whole ones, which may be sizes or the bits of others, change by one."""
    flat = x.detach().view(-1)
    if x.is_floating_point() or x.is_complex():
        flat.copy_(flat * torch.rand(flat.shape, generator=rng) + torch.rand((), generator=rng))
    elif x.dtype == torch.bool:
        flat.logical_not_()
    else:
        flat.bitwise_xor_(torch.ones_like(flat))
