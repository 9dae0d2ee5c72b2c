"""The trusted side of a rank's communicator: performs on the simulated machine what `WireComm` requests, if allowed.

A student's ranks are processes; their machine is in the grader's process, with one desk for each rank.
"""

from typing import Any

import torch

from autograder.inside.book import Book
from autograder.inside.harnesses import Harness
from autograder.inside.under_way import CHANGED, FORGOTTEN, SHARED, told
from hpcdl.comm import CommError, Communicator, Request

from .errors import StudentError

LONGEST = 1 << 24  # elements of a message: 64 MB of float32
OPERATIONS = (
    "clock",
    "accumulate",
    "compute",
    "post",
    "wait",
    "wait_any",
    "changed",
    "shared",
    "broadcast",
    "all_reduce",
    "barrier",
    "note",
)
LONGEST_BOOK = 10_000  # entries
POSTS = ("send", "recv", "sendrecv", "sendrecv_add", "isend", "irecv")


class Desk:
    """Performs one rank's operations on `comm`, a rank of the simulated machine. It trusts no request."""

    def __init__(self, comm: Communicator, takes: dict[str, float] | None = None):
        self.comm, self.location = comm, ""
        self.book = Book(comm, takes or {})
        self.requests: list[Request] = []
        self.waited, self.spoiled = set[int](), list[str]()
        self.trouble: CommError | None = None  # the machine's error during this rank's operation

    def operate(self, what: Any, *args: Any):
        """Perform one operation; return an error if it is unknown, or its arguments are not what `WireComm` would
        send."""
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

    def post(self, posts: list, location: Any):
        self._stand_at(location)
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

    def wait(self, posts: list, op: Any, numbers: list, location: Any) -> list:
        self.post(posts, location)
        requests = [self.requests[number] for number in numbers]
        self.comm._wait(op if op in POSTS else "wait", *requests)
        self.waited.update(numbers)
        return [request.x if request.side == "source" else None for request in requests]

    def wait_any(self, posts: list, numbers: list, location: Any) -> list:
        self.post(posts, location)
        requests = [self.requests[number] for number in numbers]
        first = self.comm._wait_any("wait_any", requests)
        self.waited.add(numbers[first])
        return [first, requests[first].x if requests[first].side == "source" else None]

    def changed(self, number: int):
        """Note that an isend's tensor changed before its wait."""
        self.spoiled.append(told(CHANGED, self.comm.rank, self.requests[number]))

    def shared(self, number: int):
        """Note that a message began in memory that another one still used."""
        self.spoiled.append(told(SHARED, self.comm.rank, self.requests[number]))

    def careless(self) -> list[str]:
        """See `inside.under_way`."""
        under_way = [(n, request) for n, request in enumerate(self.requests) if request.op in ("isend", "irecv")]
        return self.spoiled + [told(FORGOTTEN, self.comm.rank, r) for n, r in under_way if n not in self.waited]

    def broadcast(self, x: torch.Tensor, root: int, location: Any) -> torch.Tensor:
        self._stand_at(location)
        self.comm.broadcast(x, root)
        return x

    def all_reduce(self, x: torch.Tensor, location: Any) -> torch.Tensor:
        self._stand_at(location)
        self.comm.all_reduce(x)
        return x

    def barrier(self, location: Any):
        self._stand_at(location)
        self.comm.barrier()

    def note(self, kind: Any, name: Any, what: Any):
        """Add an entry to a harness's book (see `inside.book`)."""
        if type(kind) is not str or type(name) is not str or len(self.book.entries) >= LONGEST_BOOK:
            raise TypeError(f"no such entry, or more than {LONGEST_BOOK:,}")
        self.book.note(kind, name, what)

    def _stand_at(self, location) -> None:
        self.location = location[:160] if type(location) is str else ""


def with_book(result: object, harness: Harness | None, desk: Desk) -> object:
    """Return a harness's result with the entries of its book, which the grader has kept."""
    if harness is None or harness.booked is None:
        return result
    try:
        return harness.booked(result, desk.book.entries)
    except (TypeError, ValueError):
        raise StudentError("ended", "Your code interfered with what the grader calls it with.") from None
