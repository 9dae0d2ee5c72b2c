"""The communicator across the boundary: a student's ranks are processes, the machine that joins them is the grader's.

`WireComm` is the `comm` that a student's function gets. It does nothing itself but ask its rank's `Desk`, on the
trusted side, where the simulated machine matches messages, keeps the time and writes the trace. Tensors cross, handles
do not.
"""

import linecache
import sys

import torch

from hpcdl.comm import CommError, Communicator, Request

LONGEST = 1 << 24  # elements of a message: 64 MB of float32
OPERATIONS = ("clock", "accumulate", "compute", "post", "wait", "wait_any", "broadcast", "all_reduce", "barrier")
POSTS = ("send", "recv", "sendrecv", "sendrecv_add", "isend", "irecv")


class _Message(Request):
    __slots__ = ("number",)


class WireComm(Communicator):
    """Rank `rank` of `size`, in the student's process; `operate` calls its desk, `namespace` is the student's."""

    def __init__(self, rank: int, size: int, operate, namespace: dict):
        self.rank, self.size, self._operate, self._namespace = rank, size, operate, namespace
        self._posted, self._unposted = 0, []

    def clock(self):
        return self._operate("clock")

    def accumulate(self, out, x, weight=1.0):
        super().accumulate(out, x, weight)
        self._operate("accumulate", torch.empty(out.numel(), dtype=out.dtype))

    def compute(self, seconds):
        self._operate("compute", float(seconds))

    def _isend(self, op, x, dest, tag):
        return self._post(_Message(self, op, "dest", x, dest, tag), x.detach())

    def _irecv(self, op, out, source, tag):
        return self._post(_Message(self, op, "source", out, source, tag), torch.empty(0, dtype=out.dtype))

    def _post(self, message: _Message, x: torch.Tensor) -> _Message:
        message.number, self._posted = self._posted, self._posted + 1
        self._unposted.append((message.op, message.side, x, message.x.numel(), message.peer, message.tag))
        if message.op in ("isend", "irecv"):  # the others wait at once, and post then: one call in place of two
            self._operate("post", self._take(), self._place())
        return message

    def _take(self) -> list:
        posts, self._unposted = self._unposted, []
        return posts

    def _wait(self, op, *requests):
        numbers = [request.number for request in requests]
        arrived = self._operate("wait", self._take(), op, numbers, self._place())
        for request, value in zip(requests, arrived, strict=True):
            if request.side == "source":
                _fill(request.x, value)

    def _wait_any(self, op, requests):
        numbers = [request.number for request in requests]
        first, value = self._operate("wait_any", self._take(), numbers, self._place())
        if requests[first].side == "source":
            _fill(requests[first].x, value)
        return first

    def _broadcast(self, x, root):
        _fill(x, self._operate("broadcast", x.detach(), root, self._place()))

    def _all_reduce(self, x):
        _fill(x, self._operate("all_reduce", x.detach(), self._place()))

    def _barrier(self):
        self._operate("barrier", self._place())

    def _place(self) -> str:
        """The line of the student's code that is being run, for the report of a deadlock."""
        frame = sys._getframe()
        while frame is not None and frame.f_globals is not self._namespace:
            frame = frame.f_back
        if frame is None:
            return ""
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno, self._namespace).strip()
        return f"line {frame.f_lineno}: {line}"


def _fill(x: torch.Tensor, value: torch.Tensor) -> None:
    x.detach().view(-1).copy_(value.view(-1))


class Desk:
    """Does one rank's operations on `comm`, a rank of the simulated machine. Trusts nothing that it is asked."""

    def __init__(self, comm: Communicator):
        self.comm, self.requests, self.place = comm, [], ""
        self.trouble: CommError | None = None  # what the machine found wrong while this rank was asking

    def operate(self, what, *args):
        """One operation; an error where it is none, or its arguments are not what `WireComm` would send."""
        if what not in OPERATIONS:
            raise TypeError("no such operation")
        try:
            return getattr(self, what)(*args)
        except CommError as error:
            self.trouble = error
            raise

    def clock(self):
        return self.comm.clock()

    def accumulate(self, like: torch.Tensor):
        self.comm.accumulate(like, torch.zeros_like(like))

    def compute(self, seconds: float):
        self.comm.compute(seconds)

    def post(self, posts: list, place):
        self._stand_at(place)
        for op, side, x, numel, peer, tag in posts:
            self._post(op, side, x, numel, peer, tag)

    def _post(self, op, side, x, numel, peer, tag):
        if op not in POSTS or type(numel) is not int or not 0 <= numel <= LONGEST:
            raise TypeError(f"no such operation, or a message of more than {LONGEST:,} elements")
        peer = self.comm._check(op, "x", x, "dest" if side == "dest" else "source", peer, tag)
        if side == "dest":
            self.requests.append(self.comm._isend(op, x, peer, tag))
        else:
            self.requests.append(self.comm._irecv(op, torch.empty(numel, dtype=x.dtype), peer, tag))

    def wait(self, posts: list, op, numbers: list, place) -> list:
        self.post(posts, place)
        requests = [self.requests[number] for number in numbers]
        self.comm._wait(op if op in POSTS else "wait", *requests)
        return [request.x if request.side == "source" else None for request in requests]

    def wait_any(self, posts: list, numbers: list, place) -> list:
        self.post(posts, place)
        requests = [self.requests[number] for number in numbers]
        first = self.comm._wait_any("wait_any", requests)
        return [first, requests[first].x if requests[first].side == "source" else None]

    def broadcast(self, x: torch.Tensor, root: int, place) -> torch.Tensor:
        self._stand_at(place)
        self.comm.broadcast(x, root)
        return x

    def all_reduce(self, x: torch.Tensor, place) -> torch.Tensor:
        self._stand_at(place)
        self.comm.all_reduce(x)
        return x

    def barrier(self, place):
        self._stand_at(place)
        self.comm.barrier()

    def _stand_at(self, place) -> None:
        self.place = place[:160] if type(place) is str else ""
