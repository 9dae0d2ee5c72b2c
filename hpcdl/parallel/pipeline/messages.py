"""Messages between the stages of a pipeline, under way while the stages compute.

Nothing here can deadlock, even where a send ends only with its receive: sends are begun and left, a stage waits only
for what its next op needs, and whatever that is, its sender's own order brings it there. Receives are posted some turns
ahead, so that messages travel meanwhile. A tensor that was sent is kept until its receiver is known to have it: a later
message from there says so, without one more.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch

from hpcdl.comm import Communicator, Request
from hpcdl.parallel.pipeline.plan import Message, Plan


class _Sent(NamedTuple):
    dest: int
    taken_at: int  # the turn of `dest` that needs it
    request: Request


class Messages:
    """What one stage of `plan` receives and sends; `empty(message)` is a tensor for what arrives.

    `ahead` receives are posted before their turns; None posts all at once, in as much memory.
    """

    def __init__(self, comm: Communicator, plan: Plan, empty: Callable[[Message], torch.Tensor], ahead: int | None):
        self.comm, self.plan, self.empty = comm, plan, empty
        self._here: dict[Message, torch.Tensor] = {}  # from a part of this stage to another
        self._to_come = deque(plan.arriving(comm.rank))
        self._posted: dict[Message, tuple[torch.Tensor, Request]] = {}
        self._sent: list[_Sent] = []
        self._ahead = len(self._to_come) if ahead is None else ahead
        self._post(self._ahead)

    def take(self, message: Message) -> torch.Tensor:
        """Wait for a message, the next in this stage's order."""
        if message in self._here:
            return self._here.pop(message)
        self._post(1)
        x, request = self._posted.pop(message)
        request.wait()
        self._post(self._ahead)
        self._let_go(self.plan.sender(message), self.plan.sent_at(message))
        return x

    def give(self, message: Message, x: torch.Tensor) -> None:
        """Begin to send `x`, which stays as it is from now on; to this stage itself it is handed over."""
        dest = self.plan.stage_of(message.part)
        if dest == self.comm.rank:
            self._here[message] = x
        else:
            request = self.comm.isend(x.detach().contiguous(), dest, self._tag(message))
            self._sent.append(_Sent(dest, self.plan.taken_at(message), request))

    def finish(self) -> None:
        """Wait until all that was sent has arrived."""
        while self._sent:
            self._sent.pop(0).request.wait()

    def _post(self, count: int) -> None:
        """Let so many receives be posted, or all that are left."""
        while self._to_come and len(self._posted) < count:
            message = self._to_come.popleft()
            x = self.empty(message)
            self._posted[message] = x, self.comm.irecv(x, self.plan.sender(message), self._tag(message))

    def _let_go(self, source: int, turn: int) -> None:
        """`source` has sent what it made in `turn`: what it needed until then it has."""
        kept = []
        for sent in self._sent:
            if sent.dest == source and sent.taken_at <= turn:
                sent.request.wait()
            else:
                kept.append(sent)
        self._sent = kept

    def _tag(self, message: Message) -> int:
        return 2 * (message.microbatch * len(self.plan.parts) + message.part) + (message.op == "B")
