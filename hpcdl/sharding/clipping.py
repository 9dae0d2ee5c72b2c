"""Gradient clipping by the whole norm, when each rank has only a part of the gradient."""

from collections.abc import Iterable, Mapping, Sequence

import torch

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Communicator

EPSILON = 1e-6  # torch's `clip_grad_norm_` has it, too


def clip(shares: Iterable[torch.Tensor], comm: Communicator, max_norm: float) -> float:
    """Multiply the `shares`, which together are all ranks' gradient, by min(1, max_norm / (norm + 1e-6)), in place.

    Returns norm = sqrt(sum_r sum_i g_ri^2) in float64, bit-identical on every rank, including infinite and NaN: so all
    ranks take the step, or none. Every rank calls it; a rank may have no share. Raises ValueError unless `max_norm` is
    positive.
    """
    if not max_norm > 0:
        raise ValueError(f"clip: max_norm is {max_norm!r}; it is above 0, and infinity only measures the norm")
    shares = [share.detach().as_subclass(torch.Tensor) for share in shares]  # no longer guarded
    squares = torch.zeros(1, dtype=torch.float64, device=comm.devices[0])
    for share in shares:
        squares += torch.linalg.vector_norm(share, dtype=torch.float64).square()
    recursive_doubling_all_reduce(squares, comm)
    norm = squares.sqrt().item()
    scale = max_norm / (norm + EPSILON)
    for share in shares if not scale >= 1 else ():  # NaN scales, too, as torch has it
        share.mul_(scale)
    return norm


def norms_of_parts(
    shards: Sequence[torch.Tensor], directions: Mapping[torch.Tensor, torch.Tensor], comm: Communicator
) -> dict[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return (|w|, |u|) of the whole parameters from this rank's `shards`, for those with a direction u.

    Every rank has the same number of shards, some of them empty. One all-reduce sums two float64 numbers for each.
    """
    squares = torch.zeros(len(shards), 2, dtype=torch.float64, device=comm.devices[0])
    for row, shard in zip(squares, shards, strict=True):
        if shard in directions:
            for i, x in enumerate((shard.detach(), directions[shard])):
                row[i] = torch.linalg.vector_norm(x.as_subclass(torch.Tensor), dtype=torch.float64).square()
    recursive_doubling_all_reduce(squares.view(-1), comm)
    norms = squares.sqrt_()
    return {
        shard: tuple(row.to(shard.device, shard.dtype))
        for row, shard in zip(norms, shards, strict=True)
        if shard in directions
    }
