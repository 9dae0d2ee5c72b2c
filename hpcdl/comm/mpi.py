"""The MPI machine: mpi4py on the memory of CPU tensors, without copies, in waits that can be interrupted.

A wait polls `Test` in place of MPI's blocking call, because Python runs no signal handler while it sits inside MPI:
polling is what lets a time limit or Ctrl-C raise inside the rank, at its line.
"""

import copy
import os
import time
from array import array
from functools import lru_cache
from zlib import crc32

import torch
from mpi4py import MPI

from hpcdl.comm.background import Foreground
from hpcdl.comm.base import CommError, Communicator, Request, describe, disagreement, size_of
from hpcdl.comm.cells import LONGEST, SHORTEST, cells_of

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

NAP_BESIDE_WORK = 50e-6  # seconds between polls of a background, while the rank computes

# What MPI may still read or write. A rank that fails leaves its messages here for ever: memory that is freed while a
# message is under way would be overwritten when it arrives.
_under_way: set = set()


class _Message(Request):
    __slots__ = ("mpi", "sum")  # the request of MPI's own; (out, weight) where the message is only to be added

    def __init__(self, *what):
        super().__init__(*what)
        self.sum = None


class MPIComm(Communicator):
    """This process among those that `mpiexec` started, on `mpi` (an mpi4py communicator; COMM_WORLD if None).

    With `timeout`, a wait of more than so many seconds raises TimeoutError. With `check`, ranks compare each collective
    before it begins, at the price of one small message more: MPI itself may mix up two that do not match, silently.
    """

    segment = LONGEST
    threaded = False  # whether this is the twin that `background()` uses

    def __init__(self, mpi: MPI.Intracomm | None = None, timeout: float | None = None, check: bool = True):
        self.mpi = MPI.COMM_WORLD if mpi is None else mpi
        self.rank, self.size = self.mpi.Get_rank(), self.mpi.Get_size()
        self.timeout, self.check = timeout, check
        self._waiting: tuple | None = None  # what this rank waits for, as `describe` takes it
        self._waits = 0  # so many times this rank has begun to wait
        self._cells = cells_of(self.mpi)

    def clock(self) -> float:
        return time.perf_counter()

    def background(self):
        # Two threads never call MPI at once here, unless the rank itself communicates meanwhile.
        return super().background() if MPI.Query_thread() >= MPI.THREAD_SERIALIZED else Foreground(self)

    def for_thread(self):
        twin = copy.copy(self)
        twin.threaded = True
        twin._cells = cells_of(self.mpi, own=True)
        return twin

    def situation(self) -> dict | None:
        """What this rank waits for now, None while it does not wait; another thread may ask.

        `text`, `ranks` it waits for as (side, rank), the `number` of this wait, whether it is `alone`: one message,
        and no other of this communicator under way.
        """
        waiting, number = self._waiting, self._waits
        if waiting is None:
            return None
        pending = [request for request in (waiting[1] if len(waiting) > 1 else ()) if not request.done]
        open_messages = [message for message in tuple(_under_way) if message.comm is self and not message.done]
        return {
            "text": describe(*waiting),
            "ranks": [(request.side, request.peer) for request in pending],
            "number": number,
            "alone": len(pending) == len(open_messages) == 1,
        }

    def renew(self, mpi: MPI.Intracomm) -> None:
        """Go on over `mpi`; messages that are still under way stay with a copy of what this was."""
        before = copy.copy(self)
        for message in tuple(_under_way):
            if message.comm is self:
                message.comm = before
        self.mpi, self._waiting = mpi, None
        self._cells = cells_of(mpi)

    def finish(self, mpi: MPI.Request, op: str) -> None:
        """Wait for a request of MPI's own, in a way that can be interrupted."""
        self._poll(mpi, (op,))

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        incoming = self._irecv("sendrecv_add", scratch, source, tag)
        incoming.sum = out, weight
        self._wait("sendrecv_add", self._isend("sendrecv_add", x, dest, tag), incoming)

    def _isend(self, op, x, dest, tag):
        message = _Message(self, op, "dest", x, dest, tag)
        place = self._cells.put(x, dest) if SHORTEST <= x.nbytes <= LONGEST else None
        message.mpi = self.mpi.Isend(_bytes(x) if place is None else place, dest, tag)
        _under_way.add(message)
        return message

    def _irecv(self, op, out, source, tag):
        if SHORTEST <= out.nbytes <= LONGEST:
            self._cells.invite(source)
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
            if status is not None:
                self._land(request, status.Get_count(MPI.BYTE))

    def _land(self, request: _Message, nbytes: int) -> None:
        """Bring a message where it belongs, of which `nbytes` came over MPI."""
        arrived = self._cells.find(request.x, request.peer, nbytes)
        try:
            if (nbytes := arrived.nbytes if arrived else nbytes) != request.x.nbytes:
                raise self._misfit(request, f"{nbytes} bytes")
            if request.sum is not None:
                out, weight = request.sum
                self.accumulate(out, arrived.view(out.dtype) if arrived else request.x, weight)
            elif arrived:
                arrived.copy_to(request.x)
        finally:
            if arrived:
                arrived.free()

    def _broadcast(self, x, root):
        self._agree(x, "broadcast", f"root={root}")
        self._collective(self.mpi.Ibcast(_bytes(x), root), x, "broadcast", f"root={root}")

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

    def _agree(self, x, op: str, detail: str = "") -> None:
        """Raise CommError on every rank when they have not all come with the same collective."""
        if not self.check or self.size == 1:
            return
        numel, dtype = (0, None) if x is None else (x.numel(), x.dtype)
        number = _number(op, detail, numel, dtype)
        extremes = array("q", [number, -number])  # the largest of both are the largest and the smallest number
        self._collective(self.mpi.Iallreduce(MPI.IN_PLACE, extremes, op=MPI.MAX), extremes, op, detail)
        if extremes[0] != -extremes[1]:
            raise CommError(self._disagreement(f"{describe(op, (), detail)}|{size_of(x)}".encode(), op, detail))

    def _disagreement(self, call: bytes, op: str, detail: str) -> str:
        """The same sentence on every rank: which two called what."""
        calls = torch.zeros(self.size, 128, dtype=torch.uint8)
        mine = torch.frombuffer(bytearray(call.ljust(128, b"\0")), dtype=torch.uint8)
        self._collective(self.mpi.Iallgather(_bytes(mine), _bytes(calls)), calls, op, detail)
        texts = [tuple(bytes(row).rstrip(b"\0").decode().split("|")) for row in calls.tolist()]
        return next(filter(None, (disagreement(rank, texts[rank], 0, texts[0]) for rank in range(self.size))))

    def _collective(self, mpi: MPI.Request, x, op: str, detail: str = ""):
        message = _Message(self, op, "", x, -1, 0)
        message.mpi = mpi
        _under_way.add(message)
        self._poll(mpi, (op, (), detail))
        _under_way.discard(message)

    def _poll(self, mpi: MPI.Request, what: tuple, status: MPI.Status | None = None) -> None:
        """Return when `mpi` is complete."""
        self._waits += 1
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
        if self.given_up:
            raise CommError(f"rank {self.rank}: {describe(*what)} was given up")
        if self.threaded and self.patient:
            time.sleep(NAP_BESIDE_WORK)
        elif waited > NAP_AFTER:
            time.sleep(0.0005)  # a long wait must not take a core from the ranks it waits for
        else:
            os.sched_yield()

    def _misfit(self, request: Request, got: str) -> CommError:
        return CommError(
            f"rank {self.rank}: {describe(request.op, (request,))}: out has {request.x.nbytes} bytes, "
            f"the message {got}; both sides need the same dtype and number of elements"
        )


@lru_cache
def _number(*call) -> int:
    """The same for equal calls of all ranks (Python's own hash differs between processes)."""
    return crc32(repr(call).encode())


def _bytes(x: torch.Tensor) -> list:
    """The memory of `x` as MPI takes it; `x` must outlive the message."""
    return [MPI.buffer.fromaddress(x.data_ptr(), x.nbytes), MPI.BYTE]
