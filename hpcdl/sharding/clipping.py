"""Gradient clipping by the whole norm, when each rank has only a part of the gradient."""

from collections.abc import Iterable, Mapping, Sequence

import torch

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.apart import counted, counts_of, ranks_of
from hpcdl.ddp.guarded import numbers_of

EPSILON = 1e-6  # torch's `clip_grad_norm_` has it, too


def clip(shares: Iterable[torch.Tensor], comm: Communicator, max_norm: float) -> float:
    """Multiply the `shares`, which together are all ranks' gradient, by min(1, max_norm / (norm + 1e-6)), in place.

    Returns norm = sqrt(sum_r sum_i g_ri^2) in float64, bit-identical on every rank, including infinite and NaN: so all
    ranks take the step, or none. Every rank calls it; a rank may have no share. Raises ValueError unless `max_norm` is
    positive.
    """
    return clip_counted([(share, True) for share in shares], (comm,), max_norm)


def clip_counted(shares: Iterable[tuple[torch.Tensor, bool]], comms: Sequence[Communicator], max_norm: float) -> float:
    """`clip` over the ranks of all `comms`, the axes of a mesh: a share only counts where its bool is true."""
    if not max_norm > 0:
        raise ValueError(f"clip: max_norm is {max_norm!r}; it is above 0, and infinity only measures the norm")
    shares = [(numbers_of(share.detach()), counts) for share, counts in shares]  # no longer guarded
    squares = torch.zeros(1, dtype=torch.float64, device=comms[0].devices[0])
    for share, counts in shares:
        squares += _square(share.coalesce().values() if share.is_sparse else share) if counts else 0
    for comm in comms:
        recursive_doubling_all_reduce(squares, comm)
    norm = squares.sqrt().item()
    scale = max_norm / (norm + EPSILON)
    for share, _ in shares if not scale >= 1 else ():  # NaN scales, too, as torch has it
        (share._values() if share.is_sparse else share).mul_(scale)  # a sparse tensor might replace its numbers
    return norm


def clip_shards(
    pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], comms: Sequence[Communicator], max_norm: float
) -> float:
    """`clip` the gradients of shards, each with its whole parameter: on the ranks of the first of `comms` these differ.

    Raises ValueError for a parameter that is split over ranks of none of `comms`.
    """
    found = []
    for param, shard in pairs:
        counts = {**counts_of(param), **counts_of(shard), ranks_of(comms[0]): True}
        counts_here = counted(counts, param.shape, comms)
        if shard.grad is not None:
            found.append((shard.grad, counts_here))
    return clip_counted(found, comms, max_norm)


def _square(x: torch.Tensor) -> torch.Tensor:
    """Return sum_i |x_i|^2 in float64."""
    return torch.linalg.vector_norm(x, dtype=torch.complex128 if x.is_complex() else torch.float64).square()


def norms_of_parts(
    shards: Sequence[torch.Tensor], directions: Mapping[torch.Tensor, torch.Tensor], comm: Communicator
) -> dict[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return (|w|, |u|) of the whole parameters from this rank's `shards`, for those with a direction u; 16-bit ones'
    in float32.

    Every rank has the same number of shards, some of them empty. One all-reduce sums two float64 numbers for each.
    """
    squares = torch.zeros(len(shards), 2, dtype=torch.float64, device=comm.devices[0])
    for row, shard in zip(squares, shards, strict=True):
        if shard in directions:
            for i, x in enumerate((shard.detach(), directions[shard])):
                row[i] = _square(x.as_subclass(torch.Tensor))
    recursive_doubling_all_reduce(squares.view(-1), comm)
    norms = squares.sqrt_()
    return {
        shard: tuple(row.to(shard.device, torch.promote_types(shard.dtype.to_real(), torch.float32)))
        for row, shard in zip(norms, shards, strict=True)
        if shard in directions
    }
