"""The MPI machine: mpi4py on the memory of CPU tensors, without copies, in waits that can be interrupted."""

import time
from array import array
from functools import lru_cache
from zlib import crc32

import torch
from mpi4py import MPI

import hpcdl.comm.mpi.shared as shared
from hpcdl.comm.background import ThreadedBackground
from hpcdl.comm.base import Background
from hpcdl.comm.errors import CommError
from hpcdl.comm.mpi.cells import LONGEST, farewell_of
from hpcdl.comm.mpi.message import MPIMessage, as_bytes, under_way
from hpcdl.comm.mpi.one_memory import one_memory
from hpcdl.comm.mpi.point_to_point import PointToPoint
from hpcdl.comm.sharing import SharedTensor
from hpcdl.comm.words import describe, disagreement, size_of

DATATYPES = {  # the dtypes that all_reduce can add
    torch.float32: MPI.FLOAT,
    torch.float64: MPI.DOUBLE,
    torch.int32: MPI.INT32_T,
    torch.int64: MPI.INT64_T,
    torch.int16: MPI.INT16_T,
    torch.int8: MPI.INT8_T,
    torch.uint8: MPI.UINT8_T,
}


class MPIComm(PointToPoint):
    """One of the processes that `mpiexec` started, on `mpi` (an mpi4py communicator; COMM_WORLD if None).

    With `timeout` (seconds), a longer wait raises TimeoutError. With `check`, ranks compare each collective before it
    begins, at the price of one small extra message: MPI itself may silently mix up two collectives that do not match.
    """

    segment = LONGEST

    def __init__(self, mpi: MPI.Intracomm | None = None, timeout: float | None = None, check: bool = True):
        super().__init__(MPI.COMM_WORLD if mpi is None else mpi, timeout)
        self.check = check

    def clock(self) -> float:
        return time.perf_counter()

    def empty(self, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return shared.empty(numel, dtype)

    def lends(self, x: torch.Tensor) -> bool:
        return shared.owner(x) is not None

    def free(self) -> None:
        """Free the MPI communicator on every rank, and discard messages that were sent and never received.

        MPI gives the context of a freed communicator to the next one, which would receive such messages. A rank's
        messages arrive in order, so its farewell is the last.
        """
        farewell, others = farewell_of(self.mpi), [rank for rank in range(self.size) if rank != self.rank]
        sent = [self.mpi.Isend([None, 0, MPI.BYTE], rank, farewell) for rank in others]
        for rank in others:
            while self._drop(rank) != farewell:
                pass
        for request in sent:
            self.finish(request, "free")
        self.mpi.Free()

    def _drop(self, source: int) -> int:
        """Receive and discard the next message from `source`; return its tag."""
        status = MPI.Status()
        self._poll(lambda: self.mpi.Iprobe(source, MPI.ANY_TAG, status), ("free",))
        self.mpi.Recv(bytearray(status.Get_count(MPI.BYTE)), source, status.Get_tag())
        return status.Get_tag()

    def _background(self, channel: int) -> Background:
        # Only one of a background and its rank calls MPI at a time, unless the rank itself communicates meanwhile.
        level = MPI.THREAD_MULTIPLE if channel else MPI.THREAD_SERIALIZED
        return ThreadedBackground(self, channel) if MPI.Query_thread() >= level else super()._background(channel)

    def _broadcast(self, x, root):
        self._agree(x, "broadcast", f"root={root}")
        self._collective(self.mpi.Ibcast(as_bytes(x), root), x, "broadcast", f"root={root}")

    def _all_reduce(self, x):
        if x.dtype not in DATATYPES:
            raise TypeError(
                f"rank {self.rank}: all_reduce: x is {x.dtype}; MPI adds {', '.join(str(d) for d in DATATYPES)}: "
                "convert it first, or use a collective of hpcdl.collectives"
            )
        self._agree(x, "all_reduce")
        buffer = [MPI.buffer.fromaddress(x.data_ptr(), x.nbytes), x.numel(), DATATYPES[x.dtype]]
        self._collective(self.mpi.Iallreduce(MPI.IN_PLACE, buffer, op=MPI.SUM), x, "all_reduce")

    def _barrier(self):
        self._agree(None, "barrier")
        self._collective(self.mpi.Ibarrier(), None, "barrier")

    def _shared_tensor(self, numel: int, dtype: torch.dtype) -> SharedTensor:
        self._agree(torch.empty(numel, dtype=dtype, device="meta"), "shared_tensor")
        return one_memory(self, numel, dtype)

    def _agree(self, x, op: str, detail: str = "") -> None:
        """Raise CommError on every rank unless all of them call the same collective."""
        if not self.check or self.size == 1:
            return
        numel, dtype = (0, None) if x is None else (x.numel(), x.dtype)
        number = _number(op, detail, numel, dtype)
        extremes = array("q", [number, -number])  # the maxima of both give the largest and the smallest number
        self._collective(self.mpi.Iallreduce(MPI.IN_PLACE, extremes, op=MPI.MAX), extremes, op, detail)
        if extremes[0] != -extremes[1]:
            raise CommError(self._disagreement(f"{describe(op, (), detail)}|{size_of(x)}".encode(), op, detail))

    def _disagreement(self, call: bytes, op: str, detail: str) -> str:
        """Return the same sentence on every rank: which two ranks called which collectives."""
        calls = torch.zeros(self.size, 128, dtype=torch.uint8)
        mine = torch.frombuffer(bytearray(call.ljust(128, b"\0")), dtype=torch.uint8)
        self._collective(self.mpi.Iallgather(as_bytes(mine), as_bytes(calls)), calls, op, detail)
        texts = [bytes(row).rstrip(b"\0").decode().split("|") for row in calls.tolist()]
        return next(filter(None, (disagreement(rank, texts[rank], 0, texts[0]) for rank in range(self.size))))

    def _collective(self, mpi: MPI.Request, x, op: str, detail: str = ""):
        message = MPIMessage(self, op, "", x, -1, 0)
        message.mpi = mpi
        under_way.add(message)
        self._poll(mpi.Test, (op, (), detail))
        under_way.discard(message)


@lru_cache
def _number(*call) -> int:
    """Return a number that is equal for equal calls on all ranks (Python's own hash differs between processes)."""
    return crc32(repr(call).encode())
