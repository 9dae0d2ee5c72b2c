"""Compare before training what must be equal on every rank: a clear error now instead of a hang later."""

from itertools import chain

import torch

from hpcdl.collectives import broadcast, naive_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.postponed import hooked


def require_same(what: str, lines: list[str], comm: Communicator, advice: str) -> None:
    """Raise ValueError on every rank unless all have rank 0's `lines`; it names the first rank and line that differ.

    `what` names the lines, as in "another model"; `advice` says what to do.
    """
    if comm.silent:
        return
    first = lines_of(0, lines, comm)
    differs = torch.zeros(comm.size, dtype=torch.int32, device=comm.devices[0])
    differs[comm.rank] = lines != first
    naive_all_reduce(differs, comm)
    if differs.any():
        rank = int(differs.nonzero()[0])
        where = _first_difference(lines_of(rank, lines, comm), first)
        raise ValueError(f"rank {rank} has {what} than rank 0: {where}; {advice}")


def earlier_wrappers(comm: Communicator) -> list[str]:
    """Return a line for `require_same`: how many backgrounds exist already; no line for the first."""
    made = comm.channels.made
    return [f"{made} wrappers made before"] if made else []


def lines_of(rank: int, lines: list[str], comm: Communicator) -> list[str]:
    """Return rank `rank`'s `lines` on every rank."""
    text = "\n".join(lines).encode()
    length = torch.tensor([len(text)], device=comm.devices[0])
    broadcast(length, comm, rank)
    letters = torch.zeros(int(length), dtype=torch.uint8, device=comm.devices[0])
    if comm.rank == rank:
        letters.copy_(torch.tensor(list(text), dtype=torch.uint8))
    broadcast(letters, comm, rank)
    return bytes(letters.tolist()).decode().split("\n") if len(letters) else []


def _first_difference(theirs: list[str], first: list[str]) -> str:
    """Describe the first line that differs: "3.weight (120, 400) float32 instead of 3.weight (84, 400) float32"."""
    for line, expected in zip(theirs, first, strict=False):
        if line != expected:
            return f"{line} instead of {expected}"
    return f"{len(theirs)} entries instead of {len(first)}"


def outline(module: torch.nn.Module) -> list[str]:
    """List a model's parameters, then its buffers, one line each: name, shape, dtype, frozen, with a hook."""
    buffers = [(name, buffer, False) for name, buffer in module.named_buffers(remove_duplicate=False)]
    params = [(name, p, not p.requires_grad) for name, p in module.named_parameters(remove_duplicate=False)]
    return [
        f"{name} {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        + " frozen" * frozen
        + " with a hook" * hooked(value)
        for name, value, frozen in chain(params, buffers)
    ]
