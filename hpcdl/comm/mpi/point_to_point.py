"""Messages over MPI between the ranks of one communicator, and the waits for them.

A wait polls `Test` instead of MPI's blocking call, because Python runs no signal handler while it sits inside MPI:
polling is what lets a time limit or Ctrl-C raise inside the rank, at its line.
"""

import copy
import ctypes
import os
import time
from collections.abc import Callable
from functools import partial

import torch
from mpi4py import MPI

from hpcdl.comm.base import Communicator
from hpcdl.comm.channels import Channels
from hpcdl.comm.errors import CommError, MisfitError
from hpcdl.comm.mpi.cells import POINTER_BYTES, SHORTEST, InMemory, cells_of, channels_of
from hpcdl.comm.mpi.message import MPIMessage, as_bytes, close, end_loan, raise_error_of, under_way
from hpcdl.comm.request import Request
from hpcdl.comm.words import describe

SPIN, NAP_AFTER = 200, 0.05  # polls before yielding the core; seconds before sleeping between polls

AT_ONCE = 1 << 18  # bytes that stay in the cache while they are added and returned
NAP_BESIDE_WORK = 50e-6  # seconds between a background's polls while the rank computes


class PointToPoint(Communicator):
    """Sends, receives and waits of `MPIComm`."""

    threaded = False  # whether this is the twin that `background()` uses

    def __init__(self, mpi: MPI.Intracomm, timeout: float | None):
        self.mpi, self.timeout = mpi, timeout
        self.rank, self.size = mpi.Get_rank(), mpi.Get_size()
        self._waiting: tuple | None = None  # the current wait: the arguments of `describe`
        self._waits = 0  # the number of waits so far
        self._cells = cells_of(mpi)

    @property
    def channels(self) -> Channels:
        return channels_of(self.mpi)

    def for_thread(self, channel: int) -> "PointToPoint":
        twin = copy.copy(self)
        twin.threaded = True
        twin._cells = cells_of(self.mpi, channel)
        return twin

    def renew(self, mpi: MPI.Intracomm) -> None:
        """Continue over `mpi`; messages still in flight stay with a copy of the old communicator."""
        before = copy.copy(self)
        for message in tuple(under_way):
            if message.comm is self:
                message.comm = before
        self.mpi, self._waiting = mpi, None
        self._cells = cells_of(mpi)

    def finish(self, mpi: MPI.Request, op: str) -> None:
        """Wait, interruptibly, for a request of MPI's."""
        self._poll(mpi.Test, (op,))

    def situation(self) -> dict | None:
        """Return what this rank waits for now, or None; another thread may call this.

        Fields: `text`, the `ranks` it waits for as (side, rank), the `number` of this wait, and whether it is `alone`:
        one message, and no other message of this communicator is in flight.
        """
        waiting, number = self._waiting, self._waits
        if waiting is None:
            return None
        pending = [request for request in (waiting[1] if len(waiting) > 1 else ()) if not request.complete]
        open_messages = [message for message in tuple(under_way) if message.comm is self and not message.complete]
        return {
            "text": describe(*waiting),
            "ranks": [(request.side, request.peer) for request in pending],
            "number": number,
            "alone": len(pending) == len(open_messages) == 1,
        }

    def progress(self) -> None:
        self._take_in_others(None)

    def _recv_with(self, use, scratch, source, tag):
        incoming = self._irecv("recv", scratch, source, tag)
        incoming.use = use
        self._wait("recv", incoming)

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        incoming = self._irecv("sendrecv_add", scratch, source, tag)
        incoming.sum = out, weight, False
        self._wait("sendrecv_add", self._isend("sendrecv_add", x, dest, tag), incoming)

    def _sendrecv_add_back(self, x, dest, out, source, scratch, weight, tag):
        incoming = self._irecv("sendrecv_add", scratch, source, tag)
        incoming.sum = out, weight, True
        outgoing = self._isend_back(x, dest, tag, weight)
        self._wait("sendrecv_add", outgoing, incoming)
        # Lent memory already holds the sum; a sent message still waits for it.
        answers = [] if outgoing.loan is not None else [self._irecv("sendrecv_add", x, dest, tag)]
        answers += [] if incoming.returned else [self._isend("sendrecv_add", out, source, tag)]
        self._wait("sendrecv_add", *answers)

    def _isend_back(self, x, dest, tag, weight):
        """Send `weight * x`; if `x` is not lent, a cell saves one pass over it and the return message."""
        message = MPIMessage(self, "sendrecv_add", "dest", x, dest, tag)
        if x.nbytes >= SHORTEST and not self.lends(x) and (deposit := self._cells.deposit(x, dest, weight)):
            pointer, message.loan = deposit
            return self._post(message, pointer)
        if weight != 1:
            x.mul_(weight)
        return self._post(message, self._pointer(message))

    def _isend(self, op, x, dest, tag):
        message = MPIMessage(self, op, "dest", x, dest, tag)
        return self._post(message, self._pointer(message))

    def _post(self, message: MPIMessage, pointer: bytes | None) -> MPIMessage:
        message.mpi = self.mpi.Isend(as_bytes(message.x) if pointer is None else pointer, message.peer, message.tag)
        under_way.add(message)
        return message

    def _pointer(self, message: MPIMessage) -> bytes | None:
        """Return the pointer to a long message in shared memory; None if the message itself must be sent."""
        if message.x.nbytes < SHORTEST:
            return None
        lent = self._cells.lend(message.x, message.peer)
        if lent is None:  # in sendrecv both wait and nothing is added: MPI copies once, a cell twice
            return None if message.op == "sendrecv" else self._cells.put(message.x, message.peer)
        pointer, message.loan = lent
        return pointer

    def _irecv(self, op, out, source, tag):
        message = MPIMessage(self, op, "source", out, source, tag)
        if out.nbytes >= SHORTEST:
            self._cells.invite(source)
        elif out.nbytes < POINTER_BYTES and self._cells.may_borrow(source):
            # A message too long for `out` is an error, but its pointer must fit: its sender waits until it is read.
            message.inbox = torch.empty(POINTER_BYTES, dtype=torch.uint8)
        message.mpi = self.mpi.Irecv(as_bytes(message.inbox), source, tag)
        under_way.add(message)
        return message

    def _wait(self, op, *requests):
        pending = tuple(request for request in requests if not request.complete)
        what = op, pending
        for request in pending:
            if not request.complete and request.error is None:  # another request's wait may have received it
                self._finish_in_mpi(request, what)
            raise_error_of(request)
        for request in pending:
            if request.loan is not None:
                self._poll(request.loan.over, what)
                end_loan(request)

    def _wait_any(self, op, requests):
        def one_is_complete() -> bool:
            return any(self._test(request) for request in requests)

        self._poll(one_is_complete, (op, tuple(requests)))
        first = next(i for i, request in enumerate(requests) if request.complete or request.error is not None)
        raise_error_of(requests[first])
        return first

    def _test(self, request: MPIMessage) -> bool:
        """Return whether `request` is complete or failed, without waiting; received data are processed."""
        if request.complete or request.error is not None:
            return True
        if request.side == "source":
            self._test_receive(request)
        elif request.mpi.Test() and (request.loan is None or request.loan.over()):
            end_loan(request)
        return request.complete or request.error is not None

    def _test_receive(self, request: MPIMessage) -> None:
        """Process the message for `request`, if it has arrived."""
        status = MPI.Status()
        try:
            if request.mpi.Test(status):
                self._take_in(request, status.Get_count(MPI.BYTE))
        except MPI.Exception as error:
            request.error = self._failure(error, (request.op, (request,)), request)

    def _finish_in_mpi(self, request: MPIMessage, what: tuple) -> None:
        """Wait until MPI has finished `request`, and process what it received."""
        status = MPI.Status() if request.side == "source" else None
        self._poll(partial(request.mpi.Test, status), what, request)
        if status is not None:
            self._take_in(request, status.Get_count(MPI.BYTE))
        elif request.loan is None:
            close(request)

    def _take_in_others(self, awaited: MPIMessage | None) -> None:
        """Process messages for other receives: their senders wait for that, and this rank may wait for them."""
        for message in tuple(under_way):
            if message.comm is self and message.side == "source" and message is not awaited and message.error is None:
                self._test_receive(message)

    def _take_in(self, request: MPIMessage, nbytes: int) -> None:
        """Deliver a message, `nbytes` of it from MPI; if something is wrong, set its `error`."""
        close(request)
        try:
            self._unpack(request, nbytes)
        except CommError as error:
            request.error, request.complete = error, False  # its own wait raises it

    def _unpack(self, request: MPIMessage, nbytes: int) -> None:
        try:
            arrived = self._cells.find(request.inbox.data_ptr(), request.peer, nbytes)
        except ConnectionError as error:
            raise CommError(f"rank {self.rank}: {describe(request.op, (request,))}: {error}") from None
        try:
            if (nbytes := arrived.nbytes if arrived else nbytes) != request.x.nbytes:
                raise self._misfit(request, f"{nbytes} bytes")
            direct = request.sum is not None or request.use is not None  # shared memory is read in place
            if arrived and not direct:
                arrived.copy_to(request.x)
            elif request.inbox is not request.x:
                ctypes.memmove(request.x.data_ptr(), request.inbox.data_ptr(), nbytes)
            if request.sum is not None:
                self._add(request, *request.sum, arrived)
            elif request.use is not None:
                request.use(arrived.view(request.x.dtype) if arrived else request.x.view(-1))
        finally:
            if arrived:
                arrived.free()

    def _add(self, request: MPIMessage, out: torch.Tensor, weight: float, back: bool, arrived: InMemory | None) -> None:
        out = out.view(-1)
        theirs = arrived.view(out.dtype) if arrived else request.x.view(-1)
        request.returned = back and arrived is not None and arrived.lent
        if not request.returned:
            self.accumulate(out, theirs, weight)
            return
        step = AT_ONCE // out.itemsize
        for i in range(0, out.numel(), step):
            mine, its = out[i : i + step], theirs[i : i + step]
            self.accumulate(mine, its, weight)
            its.copy_(mine)  # both are still in the cache: writing the sum back now reads nothing twice

    def _poll(self, test: Callable[[], bool], what: tuple, request: MPIMessage | None = None) -> None:
        """Poll until `test()` is true. `request` is the message waited for, if any."""
        self._waits += 1
        self._waiting = what
        try:
            polls, start = 0, None
            while not test():
                polls += 1
                if polls > SPIN:
                    start = start or time.perf_counter()
                    self._take_in_others(request)
                    self._let_others_run(time.perf_counter() - start, what)
        except MPI.Exception as error:
            raise self._failure(error, what, request) from error
        self._waiting = None

    def _failure(self, error: MPI.Exception, what: tuple, request: MPIMessage | None) -> CommError:
        if request is not None and error.Get_error_class() == MPI.ERR_TRUNCATE:
            return self._misfit(request, "more")
        return CommError(f"rank {self.rank}: {describe(*what)}: {error}")

    def _let_others_run(self, waited: float, what: tuple) -> None:
        if self.timeout is not None and waited > self.timeout:
            raise TimeoutError(f"rank {self.rank} waited {self.timeout:g} s in {describe(*what)}")
        if self.cancelled:
            raise CommError(f"rank {self.rank}: {describe(*what)} was given up")
        if self.threaded and self.patient:
            time.sleep(NAP_BESIDE_WORK)
        elif waited > NAP_AFTER:
            time.sleep(0.0005)  # a long wait must not take a core from the ranks it waits for
        else:
            os.sched_yield()

    def _misfit(self, request: Request, got: str) -> CommError:
        return MisfitError(
            f"rank {self.rank}: {describe(request.op, (request,))}: out has {request.x.nbytes} bytes, "
            f"the message {got}; both sides need the same dtype and number of elements"
        )
