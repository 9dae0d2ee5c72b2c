"""Count the bytes that a rank sends, by kind, and the seconds that it waits, in a wrapper around its communicator."""

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch

from hpcdl.comm import Background, Communicator, Request, Wrapper
from hpcdl.comm.wrapper import WrappedBackground

# Kinds of messages: of replicas, pipeline, tensor and sequence ranks; what nothing labels are numbers to agree on.
KINDS = ("gradients", "parameters", "activations", "tensor", "sequence", "control")
BY_KIND = tuple(f"{kind}_bytes" for kind in KINDS)  # their names in a record

Message = tuple[torch.Tensor, int]  # and the rank that sends or receives it


class Meter:
    """Counts so far: `nbytes` sent by kind, `messages`, and `waited` seconds of `clock`.

    `note`, if given, is called for each wait and message with its name ("wait", "message", "received"), start and end,
    and a message's `peer`, `nbytes`, `kind` and `pair`, which its other end notes too. Several threads may count.
    """

    note: Callable[..., None] | None = None

    def __init__(self, clock: Callable[[], float]):
        self.clock, self.messages, self.waited = clock, 0, 0.0
        self.nbytes = dict.fromkeys(KINDS, 0)
        self._lock, self._ends = Lock(), Counter[tuple[str, int, str]]()

    @property
    def counts(self) -> dict[str, float]:
        """Return all counts by name: bytes of all kinds, messages, seconds, and bytes of each kind."""
        kinds = dict(zip(BY_KIND, self.nbytes.values(), strict=True))
        return {"bytes_sent": sum(kinds.values()), "messages": self.messages, "waited": self.waited, **kinds}

    def sent(self, x: torch.Tensor, kind: str) -> None:
        with self._lock:
            self.nbytes[kind] += x.nbytes
            self.messages += 1

    def pair(self, name: str, peer: int, tag: str) -> str:
        """Count one more message with `peer` and `tag`; return its number, the same on both ranks."""
        with self._lock:
            self._ends[name, peer, tag] += 1
            return f"{tag}.{self._ends[name, peer, tag]}"


class _MeteredRequest(Request):
    __slots__ = ("inner", "pair", "start")

    inner: Request  # of the inner communicator
    pair: str
    start: float

    @property
    def name(self) -> str:
        """Return what the meter's notes call it."""
        return "message" if self.side == "dest" else "received"


class MeteredComm(Wrapper):
    """Passes every operation on to `comm` and counts it in `meter`, as messages of a `kind`.

    In the background, on a `channel`, only bytes count, not waits.
    """

    def __init__(
        self, comm: Communicator, meter: Meter | None = None, kind: str = "control", channel: int | None = None
    ):
        super().__init__(comm)
        self.meter, self.kind, self.channel = meter or Meter(comm.clock), kind, channel

    def wrap(self, comm: Communicator) -> "MeteredComm":
        return MeteredComm(comm, self.meter, self.kind, self.channel)

    def labelled(self, kind: str) -> "MeteredComm":
        return MeteredComm(self.comm, self.meter, kind, self.channel)

    def _timed(self, wait: Callable, *arguments: Any) -> tuple[Any, float]:
        """Return what `wait` returns, and when."""
        if self.channel is not None:
            return wait(*arguments), self.clock()
        begin = end = self.meter.clock()
        try:
            found, end = wait(*arguments), self.meter.clock()
        except BaseException:
            end = self.meter.clock()
            raise
        finally:
            self.meter.waited += end - begin
            if self.meter.note and end > begin:
                self.meter.note("wait", begin, end)
        return found, end

    def _background(self, channel: int) -> Background:
        return _MeteredBackground(self, self.comm._background(channel), channel)

    def _isend(self, op, x, dest, tag):
        self.meter.sent(x, self.kind)
        return self._under_way(op, "dest", x, dest, tag, self.comm._isend)

    def _irecv(self, op, out, source, tag):
        return self._under_way(op, "source", out, source, tag, self.comm._irecv)

    def _under_way(self, op, side, x, peer, tag, begin):
        request = _MeteredRequest(self, op, side, x, peer, tag)
        request.start, request.pair = self.clock(), self._pair(request.name, peer, tag)
        request.inner = begin(op, x, peer, tag)
        return request

    def _wait(self, op, *requests):
        _, end = self._timed(self.comm._wait, op, *(request.inner for request in requests))
        for request in requests:
            self._complete(request, end)

    def _wait_any(self, op: str, requests: Sequence[Request]) -> int:
        metered = [request for request in requests if isinstance(request, _MeteredRequest)]
        first, end = self._timed(self.comm._wait_any, op, [request.inner for request in metered])
        self._complete(metered[first], end)
        return first

    def _complete(self, request: _MeteredRequest, end: float) -> None:
        self._note(request.name, request.start, end, request.x, request.peer, request.pair)

    def _pair(self, name: str, peer: int, tag: int) -> str:
        if not self.meter.note:
            return ""
        return self.meter.pair(name, peer, f"{'' if self.channel is None else self.channel}.{tag}")

    def _note(self, name: str, start: float, end: float, x: torch.Tensor, peer: int, pair: str) -> None:
        if self.meter.note:
            self.meter.note(name, start, end, peer=peer, nbytes=x.nbytes, kind=self.kind, pair=pair)

    def _sendrecv(self, x, dest, out, source, tag):
        self._exchange([(x, dest)], [(out, source)], super()._sendrecv, x, dest, out, source, tag)

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        exchange = super()._sendrecv_add
        self._exchange([(x, dest)], [(scratch, source)], exchange, x, dest, out, source, scratch, weight, tag)

    def _sendrecv_add_back(self, x, dest, out, source, scratch, weight, tag):
        sent, received = [(x, dest), (out, source)], [(scratch, source), (x, dest)]
        self._exchange(sent, received, super()._sendrecv_add_back, x, dest, out, source, scratch, weight, tag)

    def _exchange(self, sent: list[Message], received: list[Message], exchange: Callable, *arguments: Any) -> None:
        """Call `exchange`, which sends and receives these messages; its last argument is their tag."""
        for x, _ in sent:
            self.meter.sent(x, self.kind)
        start = self.clock()
        _, end = self._timed(exchange, *arguments)
        for name, messages in (("message", sent), ("received", received)) if self.meter.note else ():
            for x, peer in messages:
                self._note(name, start, end, x, peer, self._pair(name, peer, arguments[-1]))


class _MeteredBackground(WrappedBackground):
    """A background for which this rank's own waits count."""

    def __init__(self, comm: MeteredComm, inner: Background, channel: int):
        super().__init__(inner, lambda inside: MeteredComm(inside, comm.meter, comm.kind, channel))
        self._comm = comm

    def wait(self) -> None:
        self._comm._timed(super().wait)
