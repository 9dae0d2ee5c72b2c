"""Messages over MPI, and those in flight."""

from collections.abc import Callable
from typing import Any

import torch
from mpi4py import MPI

from hpcdl.comm.errors import CommError
from hpcdl.comm.mpi.cells import Deposit
from hpcdl.comm.mpi.shared import Loan
from hpcdl.comm.request import Request

# Messages that MPI may still read or write. A failed rank's messages stay here for good: an arriving message would
# otherwise overwrite freed memory.
under_way: set["MPIMessage"] = set()


class MPIMessage(Request):
    """A message and its MPI request `mpi`; `complete` when no part of it is in flight.

    MPI writes it to `inbox`; `error` is set if it arrived broken. `sum` is (out, weight, back) if it is only to be
    added, and `returned` tells whether the sum is back in the sender's `x`. `use` is called with it in place. With a
    `loan` it is complete only when the receiver has read `x`.
    """

    __slots__ = ("complete", "error", "inbox", "loan", "mpi", "returned", "sum", "use")

    mpi: MPI.Request
    returned: bool

    def __init__(self, *what: Any):
        super().__init__(*what)
        self.complete = False
        self.error: CommError | None = None
        self.loan: Loan | Deposit | None = None
        self.sum: tuple[torch.Tensor, float, bool] | None = None
        self.use: Callable[[torch.Tensor], None] | None = None
        self.inbox = self.x


def close(request: MPIMessage) -> None:
    """Mark `request` as complete: no part of it is in flight."""
    request.complete = True
    under_way.discard(request)


def end_loan(request: MPIMessage) -> None:
    """Close `request`: its loan, if any, has been read."""
    if request.loan is not None:
        request.loan.end()
    close(request)


def raise_error_of(request: MPIMessage) -> None:
    """Raise the error with which `request` arrived, once."""
    if request.error is not None:
        close(request)
        raise request.error


def as_bytes(x: torch.Tensor) -> list:
    """Return the memory of `x` as an argument for MPI; `x` must outlive the message."""
    return [MPI.buffer.fromaddress(x.data_ptr(), x.nbytes), MPI.BYTE]
