"""Send each rank's rows to their destinations: sequences by heads (Ulysses), tokens to their experts."""

from collections.abc import Sequence
from operator import index

import torch

from hpcdl.comm import Communicator


def all_to_all(
    x: torch.Tensor,
    comm: Communicator,
    counts: Sequence[int] | None = None,
    out_counts: Sequence[int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Send the first `counts[0]` rows of `x` to rank 0, the next `counts[1]` to rank 1, ...; return the received rows.

    x: (sum(counts), ...). Returns (sum(out_counts), ...): first the `out_counts[0]` rows from rank 0, then those from
    rank 1, ...; written into `out`, contiguous, if it is given. Without `counts`, rows are split like
    `x.tensor_split(p)`, with the same number of rows on every rank. Without `out_counts` the ranks exchange their
    counts first.

    In round d rank r sends to r + d and receives from r - d (pairwise exchange: Thakur, Rabenseifner and Gropp 2005,
    "Optimization of collective communication operations in MPICH"): p-1 messages of about n/p bytes per rank, where x
    has n: (p-1) alpha + (p-1)/p n beta. Raises TypeError or ValueError for counts that do not fit `x`, `out` or each
    other on this rank, before the first message; CommError on both ranks if one sends more or less than the other's
    `out_counts` say.
    """
    comm.check_tensor("all_to_all", "x", x)
    if x.dim() == 0:
        raise ValueError(f"rank {comm.rank}: all_to_all: x has no rows; give each rank one or more: x.view(1)")
    counts, out_counts = _both_counts(x, comm, counts, out_counts)
    out = _place(x, comm, sum(out_counts), out)
    given, taken, p, rank = x.detach().split(counts), out.detach().split(out_counts), comm.size, comm.rank
    taken[rank].copy_(given[rank])
    for distance in range(1, p):
        dest, source = (rank + distance) % p, (rank - distance) % p
        comm.sendrecv(given[dest], dest, taken[source], source)
    return out


def _both_counts(x, comm: Communicator, counts, out_counts) -> tuple[list[int], list[int]]:
    """Return the numbers of rows to each rank and from each rank."""
    equal, (each, more) = counts is None, divmod(len(x), comm.size)
    counts = [each + (i < more) for i in range(comm.size)] if equal else _checked("counts", counts, comm)
    if sum(counts) != len(x):
        raise ValueError(
            f"rank {comm.rank}: all_to_all: counts is {counts}, {sum(counts)} rows, and x has {len(x)}; "
            "every row goes to one rank"
        )
    if out_counts is not None:
        out_counts = _checked("out_counts", out_counts, comm)
    elif equal:
        out_counts = [counts[comm.rank]] * comm.size
    else:
        out_counts = all_to_all(torch.tensor(counts, device=x.device), comm).tolist()
    if counts[comm.rank] != out_counts[comm.rank]:
        raise ValueError(
            f"rank {comm.rank}: all_to_all: counts[{comm.rank}] is {counts[comm.rank]} and out_counts[{comm.rank}] is "
            f"{out_counts[comm.rank]}; what a rank keeps is as much as it gives itself"
        )
    return counts, out_counts


def _checked(name: str, counts: Sequence[int], comm: Communicator) -> list[int]:
    found = [index(count) for count in counts]
    if len(found) != comm.size or min(found) < 0:
        raise ValueError(
            f"rank {comm.rank}: all_to_all: {name} is {found}; it has one number of rows, 0 or more, for each of "
            f"{comm.size} ranks"
        )
    return found


def _place(x, comm: Communicator, rows: int, out: torch.Tensor | None) -> torch.Tensor:
    """Return `out`, checked, or a new tensor with that many rows like those in `x`."""
    shape = (rows, *x.shape[1:])
    if out is None:
        return torch.empty(shape, dtype=x.dtype, device=x.device)
    comm.check_tensor("all_to_all", "out", out)
    if (out.shape, out.dtype) != (shape, x.dtype):
        raise ValueError(
            f"rank {comm.rank}: all_to_all: out is {tuple(out.shape)} {out.dtype}; what comes is {shape} {x.dtype}"
        )
    if out.numel() and out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
        raise ValueError(f"rank {comm.rank}: all_to_all: x and out share memory; receive into a tensor of its own")
    return out
