"""Refuse a step in which one rank has left out its batch, and others have not.

Ranks tell each other with their votes on each parameter, which are sums of whole numbers: by fractions.
"""

from collections.abc import Iterable, Sequence
from math import ceil, floor

import torch

from hpcdl.collectives import naive_all_reduce
from hpcdl.comm import Communicator

LEFT_OUT = 2.0**-26  # the sum over up to 2^13 ranks is less than a vote


def with_left_out(votes: Iterable[float], samples: float, left_out: bool) -> list[float]:
    """Return a rank's `votes` on each parameter, plus what `require_none_left_out` reads from their sums.

    `left_out`: whether the rank, which has counted `samples`, had no backward pass. A rank without samples abstains.
    """
    voted = list(votes)
    if voted and samples > 0 and left_out:
        voted[0] += LEFT_OUT
    return voted


def require_none_left_out(sums: Sequence[float], mine: Sequence[float], ranks: float, comm: Communicator) -> None:
    """Raise RuntimeError on every rank if some of the `ranks` with samples have left out what others have not.

    `sums` are the votes on each parameter, and `mine` this rank's. Sends nothing unless it raises.
    """
    if comm.silent:
        return
    if sums and 0 < sums[0] % 1 / LEFT_OUT < int(ranks) and any(each >= 1 for each in sums):
        raise RuntimeError(
            f"{_ranks_with(mine[0] % 1, comm)} counted samples in a forward pass and had no backward pass, while "
            "others had one, so the mean would be over samples without a gradient; leave a batch out on every rank or "
            "on none; a rank without samples calls the model with an empty batch, or count(0) of a ShardedOptimizer"
        )


def without_left_out(sums: Iterable[float], comm: Communicator) -> list[float]:
    """Return the sums of the votes alone; a silent communicator receives fractions instead of votes."""
    return [float(ceil(each) if comm.silent else floor(each)) for each in sums]


def _ranks_with(flag: float, comm: Communicator) -> str:
    """Return the ranks on which `flag` is not 0; every rank calls it."""
    flags = torch.zeros(comm.size, dtype=torch.int32, device=comm.devices[0])
    flags[comm.rank] = flag != 0
    naive_all_reduce(flags, comm)
    found = flags.nonzero().flatten().tolist()
    return f"rank{'s' * (len(found) > 1)} {', '.join(map(str, found))}"
