"""The communicator across the boundary: a student's ranks are processes, and the grader's machine connects them.

A student's function receives a `WireComm` as `comm`. It only calls its rank's `Desk` on the trusted side, where the
simulated machine matches messages, keeps the time and writes the trace. Tensors cross the boundary, handles do not.
"""

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from hpcdl.comm import Communicator, Request

from .doors import opaque
from .location import current_line
from .under_way import bits, is_shared


class FixedMethod:
    """A method that instances cannot override: harnesses also call it, to read the clock."""

    def __init__(self, function: FunctionType):
        self.function = function

    def __get__(self, comm: Any, kind: type | None = None) -> Any:
        return self.function if comm is None else MethodType(self.function, comm)

    def __set__(self, comm: Any, value: Any) -> None:
        name = self.function.__name__
        raise AttributeError(f"comm.{name} belongs to the machine: keep what you need in a name of yours")


class _Posted(Request):
    __slots__ = ("number", "sent")
    number: int
    sent: bytes


class WireComm(Communicator):
    """Rank `rank` of `size`, in the student's process; `operate` calls its desk, `namespace` is the student's."""

    def __init__(self, rank: int, size: int, operate: Callable, namespace: dict):
        self.rank, self.size, self._operate, self._namespace = rank, size, opaque(_without_book(operate)), namespace
        self._posted = 0
        self._unposted: list[tuple] = []
        self._under_way: list[_Posted] = []

    def clock(self):
        return self._operate("clock")

    def accumulate(self, out: torch.Tensor, x: torch.Tensor, weight: float = 1.0):
        super().accumulate(out, x, weight)
        self._operate("accumulate", torch.empty(out.numel(), dtype=out.dtype))

    def compute(self, seconds: float):
        self._operate("compute", float(seconds))

    def _isend(self, op, x, dest, tag):
        return self._post(_Posted(self, op, "dest", x, dest, tag), x.detach())

    def _irecv(self, op, out, source, tag):
        return self._post(_Posted(self, op, "source", out, source, tag), torch.empty(0, dtype=out.dtype))

    def _post(self, message: _Posted, x: torch.Tensor) -> _Posted:
        message.number, self._posted = self._posted, self._posted + 1
        self._unposted.append((message.op, message.side, x, message.x.numel(), message.peer, message.tag))
        message.sent = bits(x) if message.op == "isend" else b""
        if message.op in (
            "isend",
            "irecv",
        ):  # others post in their wait: one call, not two
            self._operate("post", self._drain(), self._location())
            if is_shared(message, self._under_way):
                self._operate("shared", message.number)
            self._under_way.append(message)
        return message

    def _drain(self) -> list:
        posts, self._unposted = self._unposted, []
        return posts

    def _wait(self, op, *requests):
        numbers = [request.number for request in requests]
        arrived = self._operate("wait", self._drain(), op, numbers, self._location())
        for request, value in zip(requests, arrived, strict=True):
            self._look_at(request)
            if request.side == "source":
                _fill(request.x, value)

    def _wait_any(self, op, requests):
        numbers = [request.number for request in requests]
        first, value = self._operate("wait_any", self._drain(), numbers, self._location())
        self._look_at(requests[first])
        if requests[first].side == "source":
            _fill(requests[first].x, value)
        return first

    def _look_at(self, request: _Posted) -> None:
        """Tell the desk if an isend's tensor changed before its wait."""
        if request.op == "isend" and bits(request.x) != request.sent:
            self._operate("changed", request.number)
        self._under_way = [other for other in self._under_way if other is not request]

    def _broadcast(self, x, root):
        _fill(x, self._operate("broadcast", x.detach(), root, self._location()))

    def _all_reduce(self, x):
        _fill(x, self._operate("all_reduce", x.detach(), self._location()))

    def _barrier(self):
        self._operate("barrier", self._location())

    def _location(self) -> str:
        """Return the student's running line, for deadlock reports."""
        found = current_line(self._namespace)
        return f"line {found['line']}: {found['source']}" if found else ""


def _without_book(operate: Callable) -> Callable:
    """Return the operations that an answer's `comm` may call on its desk: all except entries in a harness's book."""

    def operation(what: str, *args: Any):
        if type(what) is not str or what == "note":
            raise TypeError("no such operation")
        return operate(what, *args)

    return operation


def _fill(x: torch.Tensor, value: torch.Tensor) -> None:
    x.detach().view(-1).copy_(value.view(-1))


for _name, _function in inspect.getmembers(WireComm, inspect.isfunction):
    if not _name.startswith("__"):
        setattr(WireComm, _name, FixedMethod(_function))
