"""Rabenseifner's all-reduce: as few bytes as the ring, in as few rounds as a tree."""

import torch

from hpcdl.collectives.chunks import chunks, weigh
from hpcdl.collectives.fold import fold
from hpcdl.comm import Communicator


def rabenseifner_all_reduce(x: torch.Tensor, comm: Communicator, weight: float = 1.0) -> None:
    """Sum `weight * x` over the ranks in place: halve the piece until each has summed 1/p of it, then double it back.

    For p = 2^k every rank sends 2 log2 p messages, together 2(p-1)/p n bytes:
    2 log2 p alpha + 2(p-1)/p n beta + (p-1)/p n gamma; other p: see `fold`
    (Rabenseifner 2004, "Optimization of collective reduction operations").
    """
    comm.check_tensor("rabenseifner_all_reduce", "x", x)
    fold(weigh(x, weight), comm, _halve_and_double)


def _halve_and_double(x: torch.Tensor, comm: Communicator, q: int) -> None:
    ends = [0]
    for chunk in chunks(x, q):
        ends.append(ends[-1] + chunk.numel())
    flat = x.view(-1)
    incoming = torch.empty_like(flat[: ends[q // 2]])
    distances = [1 << k for k in range(q.bit_length() - 1)]
    for distance in reversed(distances):
        mine, theirs = _halves(flat, ends, comm.rank, distance)
        comm.sendrecv(theirs, comm.rank ^ distance, incoming[: mine.numel()], comm.rank ^ distance)
        comm.accumulate(mine, incoming[: mine.numel()])
    for distance in distances:
        mine, theirs = _halves(flat, ends, comm.rank, distance)
        comm.sendrecv(mine, comm.rank ^ distance, theirs, comm.rank ^ distance)


def _halves(flat: torch.Tensor, ends: list[int], rank: int, distance: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `distance` chunks that `rank` sums in this round, and the same number for its partner."""
    first, other = rank & -distance, (rank ^ distance) & -distance
    return flat[ends[first] : ends[first + distance]], flat[ends[other] : ends[other + distance]]
