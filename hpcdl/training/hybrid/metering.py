"""Count the bytes that a rank sends and the seconds that it waits, in a wrapper around its communicator."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hpcdl.comm import Background, Communicator, Request, Wrapper
from hpcdl.comm.wrapper import WrappedBackground


class Meter:
    """Counts so far: `nbytes` sent, `messages`, and `waited` seconds of `clock`.

    `note`, if given, is called for each wait and message with its name, start and end, and a message's `peer` and
    `nbytes`.
    """

    note: Callable[..., None] | None = None

    def __init__(self, clock: Callable[[], float]):
        self.clock, self.nbytes, self.messages, self.waited = clock, 0, 0, 0.0

    @property
    def counts(self) -> dict[str, float]:
        """Return all three counts by name."""
        return {"bytes_sent": self.nbytes, "messages": self.messages, "waited": self.waited}

    def sent(self, x: torch.Tensor) -> None:
        self.nbytes += x.nbytes
        self.messages += 1

    def gone(self, start: float, end: float, x: torch.Tensor, peer: int) -> None:
        """Note that a message sent at `start` is complete."""
        if self.note:
            self.note("message", start, end, peer=peer, nbytes=x.nbytes)


class _MeteredRequest(Request):
    __slots__ = ("inner", "start")

    inner: Request  # of the inner communicator
    start: float


class MeteredComm(Wrapper):
    """Passes every operation on to `comm` and counts it in `meter`; in the background only bytes count, not waits."""

    def __init__(self, comm: Communicator, meter: Meter | None = None, waits: bool = True):
        super().__init__(comm)
        self.meter, self._waits = meter or Meter(comm.clock), waits

    def wrap(self, comm: Communicator) -> "MeteredComm":
        return MeteredComm(comm, self.meter, waits=False)

    def _timed(self, wait: Callable, *arguments):
        if not self._waits:
            return wait(*arguments)
        begin = self.meter.clock()
        try:
            return wait(*arguments)
        finally:
            end = self.meter.clock()
            self.meter.waited += end - begin
            if self.meter.note and end > begin:
                self.meter.note("wait", begin, end)

    def _background(self, channel: int) -> Background:
        return _MeteredBackground(self, super()._background(channel))

    def _isend(self, op, x, dest, tag):
        self.meter.sent(x)
        return self._under_way(op, "dest", x, dest, tag, self.comm._isend)

    def _irecv(self, op, out, source, tag):
        return self._under_way(op, "source", out, source, tag, self.comm._irecv)

    def _under_way(self, op, side, x, peer, tag, begin):
        request = _MeteredRequest(self, op, side, x, peer, tag)
        request.start = self.clock()
        request.inner = begin(op, x, peer, tag)
        return request

    def _wait(self, op, *requests):
        self._timed(self.comm._wait, op, *(request.inner for request in requests))
        for request in requests:
            self._complete(request)

    def _wait_any(self, op: str, requests: Sequence[Request]) -> int:
        metered = [request for request in requests if isinstance(request, _MeteredRequest)]
        first = self._timed(self.comm._wait_any, op, [request.inner for request in metered])
        self._complete(metered[first])
        return first

    def _complete(self, request: _MeteredRequest) -> None:
        if request.side == "dest":
            self.meter.gone(request.start, self.clock(), request.x, request.peer)

    def _sendrecv(self, x, dest, out, source, tag):
        self._exchange((x, dest), super()._sendrecv, x, dest, out, source, tag)

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        self._exchange((x, dest), super()._sendrecv_add, x, dest, out, source, scratch, weight, tag)

    def _sendrecv_add_back(self, x, dest, out, source, scratch, weight, tag):
        self.meter.sent(out)
        start = self.clock()
        self._exchange((x, dest), super()._sendrecv_add_back, x, dest, out, source, scratch, weight, tag)
        self.meter.gone(start, self.clock(), out, source)

    def _exchange(self, message: tuple[torch.Tensor, int], exchange: Callable, *arguments: Any) -> None:
        self.meter.sent(message[0])
        start = self.clock()
        self._timed(exchange, *arguments)
        self.meter.gone(start, self.clock(), *message)


class _MeteredBackground(WrappedBackground):
    """A background for which this rank's own waits count."""

    def __init__(self, comm: MeteredComm, inner: Background):
        super().__init__(inner, lambda inside: inside)
        self._comm = comm

    def wait(self) -> None:
        self._comm._timed(super().wait)
