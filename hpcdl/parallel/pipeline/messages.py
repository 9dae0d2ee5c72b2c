"""Messages between the stages of a pipeline, in flight while the stages compute.

Nothing here can deadlock, even if a send ends only with its receive: sends are started without waiting, and a stage
waits only for the input of its next op, which its sender's own order delivers. Receives are posted some turns ahead, so
messages travel meanwhile. A sent tensor is kept until a later message from its receiver shows that it has arrived.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch

from hpcdl.comm import Communicator, Request
from hpcdl.parallel.pipeline.plan import Plan, PlannedMessage

Tensors = list[torch.Tensor]


class _Sent(NamedTuple):
    dest: int
    taken_at: int  # the turn of `dest` that needs it
    requests: list[Request]

    def wait(self) -> None:
        for request in self.requests:
            request.wait()


class Messages:
    """The messages of one stage of `plan`; `empty(message)` returns at most `width` tensors for arriving data.

    `ahead` receives are posted before their turns; None posts all at once, in as much memory.
    """

    def __init__(
        self,
        comm: Communicator,
        plan: Plan,
        empty: Callable[[PlannedMessage], Tensors],
        ahead: int | None,
        width: int = 1,
    ):
        self.comm, self.plan, self.empty, self.width = comm, plan, empty, width
        self._here: dict[PlannedMessage, Tensors] = {}  # from a part of this stage to another
        self._to_come = deque(plan.arriving(comm.rank))
        self._posted: dict[PlannedMessage, tuple[Tensors, list[Request]]] = {}
        self._sent: list[_Sent] = []
        self._ahead = len(self._to_come) if ahead is None else ahead
        self._post(self._ahead)

    def take(self, message: PlannedMessage) -> Tensors:
        """Wait for a message, the next in this stage's order."""
        if message in self._here:
            return self._here.pop(message)
        self._post(1)
        xs, requests = self._posted.pop(message)
        for request in requests:
            request.wait()
        self._post(self._ahead)
        self._let_go(self.plan.sender(message), self.plan.sent_at(message))
        return xs

    def give(self, message: PlannedMessage, xs: Tensors) -> None:
        """Begin to send `xs`, which must not change from now on; for this stage itself they are passed directly."""
        dest = self.plan.stage_of(message.part)
        if dest == self.comm.rank:
            self._here[message] = xs
        else:
            requests = [
                self.comm.isend(x.detach().resolve_conj().resolve_neg().contiguous(), dest, self._tag(message, i))
                for i, x in enumerate(xs)
            ]
            self._sent.append(_Sent(dest, self.plan.taken_at(message), requests))

    def finish(self) -> None:
        """Wait until everything sent has arrived."""
        while self._sent:
            self._sent.pop(0).wait()

    def _post(self, count: int) -> None:
        """Let so many receives be posted, or all that are left."""
        while self._to_come and len(self._posted) < count:
            message = self._to_come.popleft()
            xs, source = self.empty(message), self.plan.sender(message)
            requests = [self.comm.irecv(x, source, self._tag(message, i)) for i, x in enumerate(xs)]
            self._posted[message] = xs, requests

    def _let_go(self, source: int, turn: int) -> None:
        """`source` has sent what it made in `turn`: what it needed until then it has."""
        kept = []
        for sent in self._sent:
            if sent.dest == source and sent.taken_at <= turn:
                sent.wait()
            else:
                kept.append(sent)
        self._sent = kept

    def _tag(self, message: PlannedMessage, i: int) -> int:
        """Return the tag of the i-th tensor of a message."""
        number = 2 * (message.microbatch * len(self.plan.parts) + message.part) + (message.op == "B")
        return number * self.width + i
