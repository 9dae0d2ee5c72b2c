"""Refuse a step in which one rank has left out what others have not: its batch, or a parameter that it has frozen.

Ranks tell each other with their votes on each parameter, which are sums of whole numbers: by fractions.
"""

from collections.abc import Iterable, Sequence
from math import ceil, floor

import torch

from hpcdl.collectives import naive_all_reduce
from hpcdl.comm import Communicator

FROZEN, LEFT_OUT = 2.0**-13, 2.0**-26  # of the sums over up to 2^13 ranks each is a part of its own


def with_left_out(votes: Iterable[float], frozen: Iterable[bool], samples: float, left_out: bool) -> list[float]:
    """Return a rank's `votes` on each parameter, plus what `require_none_left_out` reads from their sums.

    `frozen`: whether the parameter requires no gradient. `left_out`: whether the rank, which has counted `samples`, had
    no backward pass. A rank without samples abstains.
    """
    voted = [vote + FROZEN * (is_frozen and samples > 0) for vote, is_frozen in zip(votes, frozen, strict=True)]
    if voted and samples > 0 and left_out:
        voted[0] += LEFT_OUT
    return voted


def require_none_left_out(
    sums: Sequence[float], mine: Sequence[float], names: Sequence[object], ranks: float, comm: Communicator
) -> None:
    """Raise RuntimeError on every rank if some of the `ranks` with samples have left out what others have not.

    `sums` are the votes on the parameters `names`, and `mine` this rank's. Sends nothing unless it raises.
    """
    if comm.silent:
        return
    parts = [divmod(each % 1, FROZEN) for each in sums]
    if parts and 0 < parts[0][1] / LEFT_OUT < int(ranks) and any(each >= 1 for each in sums):
        raise RuntimeError(
            f"{_ranks_with(mine[0] % FROZEN, comm)} counted samples in a forward pass and had no backward pass, while "
            "others had one, so the mean would be over samples without a gradient; leave a batch out on every rank or "
            "on none; a rank without samples calls the model with an empty batch, or count(0) of a ShardedOptimizer"
        )
    for name, own, (frozen, _) in zip(names, mine, parts, strict=True):
        if 0 < frozen < int(ranks):
            raise RuntimeError(
                f"parameter {name} is frozen on {_ranks_with(own % 1 >= FROZEN, comm)} and trained on others, so its "
                "gradient would lack samples; set requires_grad to the same on every rank"
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
