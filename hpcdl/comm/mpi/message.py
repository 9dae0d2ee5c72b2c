"""A message over MPI, and all that are under way."""

from collections.abc import Callable
from typing import Any

import torch
from mpi4py import MPI

from hpcdl.comm.errors import CommError
from hpcdl.comm.mpi.cells import Deposit
from hpcdl.comm.mpi.shared import Loan
from hpcdl.comm.request import Request

# What MPI may still read or write. A rank that fails leaves its messages here for ever: memory that is freed while a
# message is under way would be overwritten when it arrives.
under_way: set["Message"] = set()


class Message(Request):
    """A message and `mpi`, the request of MPI's own; `complete` when nothing of it is under way any more.

    `inbox` is where MPI writes it, `error` what was wrong with it when it came; `sum` is (out, weight, back) where it
    is only to be added, and `returned` whether the sum is back in the sender's `x`; `use` is called with it where it
    lies; with a `loan` it is complete only when the receiver has read `x`.
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


def close(request: Message) -> None:
    """Nothing of `request` is under way any more."""
    request.complete = True
    under_way.discard(request)


def end_loan(request: Message) -> None:
    """What was lent, if anything, has been read: close `request`."""
    if request.loan is not None:
        request.loan.end()
    close(request)


def raise_error_of(request: Message) -> None:
    """Raise, once, what was wrong with `request` when it came."""
    if request.error is not None:
        close(request)
        raise request.error


def as_bytes(x: torch.Tensor) -> list:
    """The memory of `x` as an argument of MPI; `x` must outlive the message."""
    return [MPI.buffer.fromaddress(x.data_ptr(), x.nbytes), MPI.BYTE]
