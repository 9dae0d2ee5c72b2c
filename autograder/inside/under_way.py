"""Check a rank's messages in flight: it must wait for each, and must not change a sent tensor before that.

It must not receive two messages at a time into one place, either. In MPI anything else is undefined, and shows only if
a receiver is late. So this inspects messages instead of timing them.
"""

import ctypes
from collections.abc import Iterable
from typing import Any

import torch

from hpcdl.comm import Communicator, Request
from hpcdl.comm.request import share_memory

CHANGED = "{}'s {} {} rank {} is not waited for before its tensor is changed"
FORGOTTEN = "{}'s {} {} rank {} is never waited for"
SHARED = "{}'s {} {} rank {} begins in memory that another message still uses"


def bits(x: torch.Tensor) -> bytes:
    """Return the bytes of a contiguous tensor, copied outside the tensor meters' view."""
    return ctypes.string_at(x.data_ptr(), x.nbytes) if x.nbytes else b""


def told(sentence: str, rank: int, request: Request) -> str:
    toward = "to" if request.side == "dest" else "from"
    return sentence.format(f"rank {rank}", request.op, toward, request.peer)


def is_shared(message: Request, others: Iterable[Request]) -> bool:
    """Whether a message receives into memory of one of `others`, or is received into by one."""
    return any("irecv" in (message.op, other.op) and share_memory(message.x, other.x) for other in others)


class WatchedComm:
    """Watches `isend` and `irecv` of one rank's `comm`; `careless()` says what was wrong."""

    def __init__(self, comm: Communicator):
        machine: Any = comm  # its methods are replaced
        self.rank, self.sent = comm.rank, list[tuple[Request, bytes]]()
        self.changed: list[str] = []
        isend, irecv, wait, wait_any = comm._isend, comm._irecv, comm._wait, comm._wait_any

        def posted(op, request):
            if op in ("isend", "irecv"):
                if is_shared(request, (other for other, _ in self.sent)):
                    self.changed.append(told(SHARED, self.rank, request))
                self.sent.append((request, bits(request.x) if op == "isend" else b""))
            return request

        def waited(op, *requests):
            self.look_at(requests)
            wait(op, *requests)

        def waited_any(op, requests):
            first = wait_any(op, requests)
            self.look_at(requests[first : first + 1])
            return first

        machine._isend = lambda op, x, dest, tag: posted(op, isend(op, x, dest, tag))
        machine._irecv = lambda op, out, source, tag: posted(op, irecv(op, out, source, tag))
        machine._wait, machine._wait_any = waited, waited_any

    def look_at(self, requests: Iterable[Any]) -> None:
        """Compare the tensors of `requests` with their content at the start of the send."""
        for request, before in [entry for entry in self.sent if any(entry[0] is request for request in requests)]:
            if request.op == "isend" and bits(request.x) != before:
                self.changed.append(told(CHANGED, self.rank, request))
        self.sent = [entry for entry in self.sent if not any(entry[0] is request for request in requests)]

    def careless(self) -> list[str]:
        return self.changed + [told(FORGOTTEN, self.rank, request) for request, _ in self.sent]
