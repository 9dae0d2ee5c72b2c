"""The MPI machine: mpi4py on the memory of CPU tensors, without copies, in waits that can be interrupted.

A wait polls `Test` in place of MPI's blocking call, because Python runs no signal handler while it sits inside MPI:
polling is what lets a time limit or Ctrl-C raise inside the rank, at its line.
"""

import os
import time

import torch
from mpi4py import MPI

from hpcdl.comm.base import CommError, Communicator, Request, describe

DATATYPES = {  # what all_reduce can add
    torch.float32: MPI.FLOAT,
    torch.float64: MPI.DOUBLE,
    torch.int32: MPI.INT32_T,
    torch.int64: MPI.INT64_T,
    torch.int16: MPI.INT16_T,
    torch.int8: MPI.INT8_T,
    torch.uint8: MPI.UINT8_T,
}
SPIN, NAP_AFTER = 200, 0.05  # polls before it lets others run; seconds before it sleeps between polls

# What MPI may still read or write. A rank that fails leaves its messages here for ever: memory that is freed while a
# message is under way would be overwritten when it arrives.
_under_way: set = set()


class _Message(Request):
    __slots__ = ("mpi",)


class MPIComm(Communicator):
    """This process among those that `mpiexec` started, on `mpi` (an mpi4py communicator; COMM_WORLD if None).

    With `timeout`, a wait of more than so many seconds raises TimeoutError.
    """

    def __init__(self, mpi: MPI.Intracomm | None = None, timeout: float | None = None):
        self.mpi = MPI.COMM_WORLD if mpi is None else mpi
        self.rank, self.size = self.mpi.Get_rank(), self.mpi.Get_size()
        self.timeout = timeout
        self._waiting: tuple | None = None  # what this rank waits for, as `describe` takes it

    def clock(self) -> float:
        return time.perf_counter()

    def situation(self) -> dict | None:
        """What this rank waits for now, and the ranks it waits for; None while it does not wait."""
        waiting = self._waiting
        if waiting is None:
            return None
        requests = waiting[1] if len(waiting) > 1 else ()
        return {"text": describe(*waiting), "ranks": [(r.side, r.peer) for r in requests if not r.done]}

    def finish(self, mpi: MPI.Request, op: str) -> None:
        """Wait for a request of MPI's own, in a way that can be interrupted."""
        self._poll(mpi, (op,))

    def _isend(self, op, x, dest, tag):
        message = _Message(self, op, "dest", x, dest, tag)
        message.mpi = self.mpi.Isend(_bytes(x), dest, tag)
        _under_way.add(message)
        return message

    def _irecv(self, op, out, source, tag):
        message = _Message(self, op, "source", out, source, tag)
        message.mpi = self.mpi.Irecv(_bytes(out), source, tag)
        _under_way.add(message)
        return message

    def _wait(self, op, *requests):
        pending = tuple(request for request in requests if not request.done)
        for request in pending:
            status = MPI.Status() if request.side == "source" else None
            self._poll(request.mpi, (op, pending), status)
            request.done = True
            _under_way.discard(request)
            if status is not None and status.Get_count(MPI.BYTE) != request.x.nbytes:
                raise self._misfit(request, f"{status.Get_count(MPI.BYTE)} bytes")

    def _broadcast(self, x, root):
        self._collective(self.mpi.Ibcast(_bytes(x), root), x, "broadcast", f"root={root}")

    def _all_reduce(self, x):
        if x.dtype not in DATATYPES:
            raise TypeError(
                f"rank {self.rank}: all_reduce: x is {x.dtype}; MPI adds {', '.join(str(d) for d in DATATYPES)}: "
                "convert it first, or use a collective of hpcdl.collectives"
            )
        buffer = [MPI.buffer.fromaddress(x.data_ptr(), x.nbytes), x.numel(), DATATYPES[x.dtype]]
        self._collective(self.mpi.Iallreduce(MPI.IN_PLACE, buffer, op=MPI.SUM), x, "all_reduce")

    def _barrier(self):
        self._collective(self.mpi.Ibarrier(), None, "barrier")

    def _collective(self, mpi: MPI.Request, x, op: str, detail: str = ""):
        message = _Message(self, op, "", x, -1, 0)
        message.mpi = mpi
        _under_way.add(message)
        self._poll(mpi, (op, (), detail))
        _under_way.discard(message)

    def _poll(self, mpi: MPI.Request, what: tuple, status: MPI.Status | None = None) -> None:
        """Return when `mpi` is complete."""
        self._waiting = what
        try:
            polls, start = 0, None
            while not mpi.Test(status):
                polls += 1
                if polls > SPIN:
                    start = start or time.perf_counter()
                    self._let_others_run(time.perf_counter() - start, what)
        except MPI.Exception as error:
            if error.Get_error_class() == MPI.ERR_TRUNCATE:
                raise self._misfit(what[1][0], "more") from None
            raise CommError(f"rank {self.rank}: {describe(*what)}: {error}") from error
        self._waiting = None

    def _let_others_run(self, waited: float, what: tuple) -> None:
        if self.timeout is not None and waited > self.timeout:
            raise TimeoutError(f"rank {self.rank} waited {self.timeout:g} s in {describe(*what)}")
        if waited > NAP_AFTER:
            time.sleep(0.0005)  # a long wait must not take a core from the ranks it waits for
        else:
            os.sched_yield()

    def _misfit(self, request: Request, got: str) -> CommError:
        return CommError(
            f"rank {self.rank}: {describe(request.op, (request,))}: out has {request.x.nbytes} bytes, "
            f"the message {got}; both sides need the same dtype and number of elements"
        )


def _bytes(x: torch.Tensor) -> list:
    """The memory of `x` as MPI takes it; `x` must outlive the message."""
    return [MPI.buffer.fromaddress(x.data_ptr(), x.nbytes), MPI.BYTE]
