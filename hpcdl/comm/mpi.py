"""The MPI machine: mpi4py on the memory of CPU tensors, without copies, in waits that can be interrupted.

A wait polls `Test` in place of MPI's blocking call, because Python runs no signal handler while it sits inside MPI: polling is
what lets a time limit or Ctrl-C raise inside the rank, at its line.
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

_abandoned = []  # buffers that MPI may still read or write after an interrupted wait: never freed


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
        self.waiting = ""  # what this rank waits for now, for whoever watches it

    def clock(self) -> float:
        return time.perf_counter()

    def _isend(self, op, x, dest, tag):
        message = _Message(self, op, "dest", x, dest, tag)
        message.mpi = self.mpi.Isend(_bytes(x), dest, tag)
        return message

    def _irecv(self, op, out, source, tag):
        message = _Message(self, op, "source", out, source, tag)
        message.mpi = self.mpi.Irecv(_bytes(out), source, tag)
        return message

    def _wait(self, op, *requests):
        pending = tuple(request for request in requests if not request.done)
        for request in pending:
            status = MPI.Status() if request.side == "source" else None
            self._poll(request.mpi, request.x, (op, pending), status)
            request.done = True
            if status is not None and status.Get_count(MPI.BYTE) != request.x.nbytes:
                raise self._misfit(request, f"{status.Get_count(MPI.BYTE)} bytes")

    def _broadcast(self, x, root):
        self._poll(self.mpi.Ibcast(_bytes(x), root), x, ("broadcast", (), f"root={root}"))

    def _all_reduce(self, x):
        if x.dtype not in DATATYPES:
            raise TypeError(
                f"rank {self.rank}: all_reduce: x is {x.dtype}; MPI adds {', '.join(str(d) for d in DATATYPES)}: "
                "convert it first, or use a collective of hpcdl.collectives"
            )
        buffer = [MPI.buffer.fromaddress(x.data_ptr(), x.nbytes), x.numel(), DATATYPES[x.dtype]]
        self._poll(self.mpi.Iallreduce(MPI.IN_PLACE, buffer, op=MPI.SUM), x, ("all_reduce",))

    def _barrier(self):
        self._poll(self.mpi.Ibarrier(), None, ("barrier",))

    def _poll(self, mpi: MPI.Request, x, what: tuple, status: MPI.Status | None = None) -> None:
        """Return when `mpi` is complete; if that is interrupted, make sure that MPI never writes to freed memory."""
        self.waiting = what
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
        except BaseException:
            _abandoned.append(x)
            raise
        self.waiting = ""

    def _let_others_run(self, waited: float, what: tuple) -> None:
        if self.timeout is not None and waited > self.timeout:
            raise TimeoutError(f"rank {self.rank} waited {self.timeout:g} s in {describe(*what)}")
        if waited > NAP_AFTER:
            time.sleep(0.0005)  # a long wait must not take a core from the ranks it waits for
        else:
            os.sched_yield()

    def _misfit(self, request: Request, got: str) -> CommError:
        return CommError(
            f"rank {self.rank}: {describe(request.op, (request,))}: out has {request.x.nbytes} bytes, the message {got}; "
            "both sides need the same dtype and number of elements"
        )


def _bytes(x: torch.Tensor) -> list:
    """The memory of `x` as MPI takes it; `x` must outlive the message."""
    return [MPI.buffer.fromaddress(x.data_ptr(), x.nbytes), MPI.BYTE]
