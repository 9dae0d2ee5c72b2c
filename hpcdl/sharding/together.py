"""Local work on each rank that succeeds on all ranks or fails on all."""

from collections.abc import Callable

import torch

from hpcdl.collectives import naive_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.agreement import lines_of

ERRORS = (OSError, FileNotFoundError, ValueError, KeyError)


def together(work: Callable[[], str], comm: Communicator) -> list[str]:
    """Return each rank's result of `work` on every rank; if one raises, every rank raises its error."""
    code, line = 0, ""
    try:
        line = work()
    except ERRORS as error:
        code = max(i for i, kind in enumerate(ERRORS, 1) if isinstance(error, kind))
        line = f"rank {comm.rank}: {error.args[0] if isinstance(error, KeyError) else error}"
    ranks = torch.zeros(2, comm.size, dtype=torch.int64, device=comm.devices[0])
    ranks[:, comm.rank] = torch.tensor([code, bool(line)])
    naive_all_reduce(ranks, comm)
    codes, speaks = ranks.tolist()
    if any(codes):
        rank = next(rank for rank, failed in enumerate(codes) if failed)
        raise ERRORS[codes[rank] - 1](" ".join(lines_of(rank, [line], comm)))
    # A rank with nothing to say sends no message: often that is every rank.
    return ["\n".join(lines_of(rank, [line], comm)) if speaks[rank] else "" for rank in range(comm.size)]
