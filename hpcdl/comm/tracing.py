"""The tracing machine: wraps any communicator and records what every operation moved, and when."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, overload

import torch

from hpcdl.comm.base import Communicator
from hpcdl.comm.request import Request
from hpcdl.comm.sharing import SharedTensor
from hpcdl.comm.wrapper import Wrapper


class Event(NamedTuple):
    """One completed operation of one rank: called at `start`, complete at `end` (seconds of the machine's clock)."""

    start: float
    end: float
    rank: int
    op: str  # "send", "recv", "broadcast", "all_reduce", "barrier", "accumulate", "compute"; "read", "write"
    peer: int  # the other rank; the root of a broadcast; -1 if none
    nbytes: int
    tag: int


class Trace(Sequence[Event]):
    """Events in the order in which they completed; a sequence of `Event`.

    It is stored as columns: a ring over 1,024 ranks has four million events.
    """

    def __init__(self, events: Iterable[Event] = ()):
        ops: list[str] = []
        a, b, c, d, e, f, g = array("d"), array("d"), array("i"), ops, array("i"), array("q"), array("i")
        self._columns = a, b, c, d, e, f, g
        self._append = a.append, b.append, c.append, d.append, e.append, f.append, g.append
        for event in events:
            self.record(*event)

    def record(
        self, start: float, end: float, rank: int, op: str, peer: int = -1, nbytes: int = 0, tag: int = 0
    ) -> None:
        """Append the event with these fields."""
        a, b, c, d, e, f, g = self._append  # unrolled: the simulated machine spends its time here
        a(start), b(end), c(rank), d(op), e(peer), f(nbytes), g(tag)

    def __len__(self):
        return len(self._columns[0])

    @overload
    def __getitem__(self, i: int) -> Event: ...

    @overload
    def __getitem__(self, i: slice) -> "Trace": ...

    def __getitem__(self, i):
        if isinstance(i, slice):
            return Trace(self[j] for j in range(*i.indices(len(self))))
        return Event(*(column[i] for column in self._columns))

    def __iter__(self) -> Iterator[Event]:
        return map(Event, *self._columns)

    def __eq__(self, other):
        return isinstance(other, Trace) and self._columns == other._columns

    def __reduce__(self):
        return Trace, (list(self),)

    def __repr__(self):
        return f"<Trace of {len(self)} events>"

    def to_json(self) -> str:
        """Return the events as a JSON list of objects."""
        return json.dumps([event._asdict() for event in self])

    def to_chrome(self) -> str:
        """Return the timeline for chrome://tracing and Perfetto: one row per rank, in microseconds."""
        rows = [
            {
                "ph": "X",
                "pid": 0,
                "tid": event.rank,
                "name": event.op,
                "ts": event.start * 1e6,
                "dur": (event.end - event.start) * 1e6,
                "args": {"peer": event.peer, "bytes": event.nbytes, "tag": event.tag},
            }
            for event in self
        ]
        names = [
            {"ph": "M", "pid": 0, "tid": rank, "name": "thread_name", "args": {"name": f"rank {rank}"}}
            for rank in sorted({event.rank for event in self})
        ]
        return json.dumps({"traceEvents": names + rows, "displayTimeUnit": "ms"})


class _TracedRequest(Request):
    __slots__ = ("inner", "start")

    inner: Request  # of the inner communicator
    start: float


class TracingComm(Wrapper):
    """Passes every operation on to `comm` and records it in `.trace`; each rank records its own side.

    Tracing does not change what runs. The parts of `sendrecv_add` (a send, a receive, a sum) are recorded with the
    times of the whole operation. Traces can be pickled, sent to another rank and merged: `Trace(sorted([*a, *b],
    key=lambda e: e.end))`.
    """

    def __init__(self, comm: Communicator):
        super().__init__(comm)
        self.trace = Trace()

    def wrap(self, comm: Communicator) -> "TracingComm":
        traced = TracingComm(comm)
        traced.trace = self.trace
        return traced

    def accumulate(self, out: torch.Tensor, x: torch.Tensor, weight: float = 1.0) -> None:
        self._record("accumulate", self.comm.accumulate, out, x, weight, nbytes=out.nbytes)

    def compute(self, seconds: float) -> None:
        self._record("compute", self.comm.compute, seconds)

    def _isend(self, op, x, dest, tag):
        return self._under_way(op, "dest", x, dest, tag, self.comm._isend)

    def _irecv(self, op, out, source, tag):
        return self._under_way(op, "source", out, source, tag, self.comm._irecv)

    def _under_way(self, op, side, x, peer, tag, begin):
        request = _TracedRequest(self, op, side, x, peer, tag)
        request.start = self.clock()
        request.inner = begin(op, x, peer, tag)
        return request

    def _wait(self, op, *requests):
        self.comm._wait(op, *(request.inner for request in requests))
        for request in requests:
            self._record_request(request)

    def _wait_any(self, op, requests):
        first = self.comm._wait_any(op, [request.inner for request in requests])
        self._record_request(requests[first])
        return first

    def _record_request(self, request: _TracedRequest) -> None:
        op = "send" if request.side == "dest" else "recv"
        self.trace.record(request.start, self.clock(), self.rank, op, request.peer, request.x.nbytes, request.tag)

    # A machine may treat `sendrecv` and the like as more than their parts (NCCL, MPI): call the whole operation.

    def _sendrecv(self, x, dest, out, source, tag):
        start = self.clock()
        self.comm._sendrecv(x, dest, out, source, tag)
        self._record_exchange(start, x, dest, out, source, tag)

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        start = self.clock()
        self.comm._sendrecv_add(x, dest, out, source, scratch, weight, tag)
        self._record_sum(start, x, dest, out, source, scratch, tag)

    def _sendrecv_add_back(self, x, dest, out, source, scratch, weight, tag):
        start = self.clock()
        self.comm._sendrecv_add_back(x, dest, out, source, scratch, weight, tag)
        self._record_sum(start, x, dest, out, source, scratch, tag)
        self._record_exchange(start, out, source, x, dest, tag)

    def _record_sum(self, start: float, x, dest: int, out, source: int, scratch, tag: int) -> None:
        self._record_exchange(start, x, dest, scratch, source, tag)
        self.trace.record(start, self.clock(), self.rank, "accumulate", -1, out.nbytes)

    def _record_exchange(self, start: float, x, dest: int, out, source: int, tag: int) -> None:
        end = self.clock()
        self.trace.record(start, end, self.rank, "send", dest, x.nbytes, tag)
        self.trace.record(start, end, self.rank, "recv", source, out.nbytes, tag)

    def _broadcast(self, x, root):
        self._record("broadcast", self.comm._broadcast, x, root, peer=root, nbytes=x.nbytes)

    def _all_reduce(self, x):
        self._record("all_reduce", self.comm._all_reduce, x, nbytes=x.nbytes)

    def _barrier(self):
        self._record("barrier", self.comm._barrier)

    def _shared_tensor(self, numel: int, dtype: torch.dtype) -> SharedTensor:
        return self.comm._shared_tensor(numel, dtype)  # its accesses are not operations of a communicator

    def _record(self, op: str, run: Callable, *args, peer: int = -1, nbytes: int = 0) -> None:
        start = self.clock()
        run(*args)
        self.trace.record(start, self.clock(), self.rank, op, peer, nbytes)
