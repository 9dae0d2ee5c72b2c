"""Work that each rank does on its own, and that has been done on all of them, or failed on all."""

from collections.abc import Callable

import torch

from hpcdl.collectives import naive_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.agreement import lines_of

ERRORS = (OSError, FileNotFoundError, ValueError, KeyError)


def together(work: Callable[[], str], comm: Communicator) -> list[str]:
    """What `work` returns on each rank, on every rank; where one raises, every rank raises its error."""
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
    # Who has nothing to say costs no message: often that is everyone.
    return ["\n".join(lines_of(rank, [line], comm)) if speaks[rank] else "" for rank in range(comm.size)]
