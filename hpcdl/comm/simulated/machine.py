"""The state that simulated ranks share: it matches sends with receives and keeps the time."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, NoReturn

import torch

from hpcdl.comm.channels import Channels
from hpcdl.comm.errors import CommError, MisfitError
from hpcdl.comm.request import Request
from hpcdl.comm.simulated.turns import Turns
from hpcdl.comm.tracing import Trace
from hpcdl.comm.words import describe, disagreement, size_of


class Links(NamedTuple):
    """The costs of messages between nodes and within them, and of sums."""

    alpha: float
    beta: float
    gamma: float
    per_node: int
    alpha_within: float
    beta_within: float

    def step(self, p: int, nbytes: int) -> float:
        """Return the cost of one step of a collective over all p ranks: as slow as its slowest message."""
        alpha, beta = (self.alpha, self.beta) if p > self.per_node else (self.alpha_within, self.beta_within)
        return alpha + nbytes * beta


class SimulatedMessage(Request):
    """One side of a message: when it was `posted`, and `completed` (None until the other side has posted too)."""

    __slots__ = ("completed", "posted", "waiter")

    posted: float
    completed: float | None
    waiter: int | None  # the turn that waits for it, if any


class SimulatedMachine:
    """Time, ports and messages of `p` ranks.

    `turns` lists the ranks first, then their backgrounds. `owners` gives each turn's rank, `waiting` its current wait
    (the arguments of `describe`, or None).
    """

    def __init__(self, p: int, links: Links, seed: int, slow: Mapping[int, float] | None = None):
        self.p, self.links = p, links
        self.slowness = [float((slow or {}).get(rank, 1.0)) for rank in range(p)]  # factors on each rank's work
        self.turns = Turns(p, seed)
        self.trace = Trace()
        self.first_error: CommError | None = None  # the first error between ranks
        self.bytes_sent = [0] * p
        self.channels = [Channels() for _ in range(p)]  # of each rank's backgrounds
        self.owners = list(range(p))
        self.waiting: list[tuple | None] = [None] * p
        self._missing = [0] * p  # by turn: how many awaited messages are incomplete
        self._any: dict[int, set[SimulatedMessage]] = {}  # turn -> messages; it waits for any one of them
        self._seeded, self._tie = bool(seed), Random(seed).random
        # (source, dest, tag) -> messages that only one side has posted
        self.unmatched: defaultdict[tuple[int, int, int], deque[SimulatedMessage]] = defaultdict(deque)
        self._send_free, self._receive_free = [0.0] * p, [0.0] * p  # when each rank's ports become free
        self._collective: dict[int, tuple] = {}  # arrived rank -> (operation, tensor, when)
        self._combined: Any = None  # result of the last one; the next begins after all have taken it

    def add_turn(self, owner: int, body: Callable[[int], None]) -> int:
        """Add a turn for rank `owner`'s background; return its number."""
        number = self.turns.spawn(body)
        self.owners.append(owner)
        self.waiting.append(None)
        self._missing.append(0)
        return number

    # -- messages ---------------------------------------------------------------------------------------------------

    def post(self, message: SimulatedMessage, channel: tuple[int, int, int]) -> SimulatedMessage:
        """Match a message with the earliest one of the other side on (source, dest, tag), or queue it."""
        message.posted, message.completed, message.waiter = message.comm.clock(), None, None
        unmatched = self.unmatched[channel]
        if not unmatched or unmatched[0].side == message.side:
            unmatched.append(message)
        elif message.side == "dest":
            self._transfer(message, unmatched.popleft())
        else:
            self._transfer(unmatched.popleft(), message)
        return message

    def _transfer(self, sent: SimulatedMessage, received: SimulatedMessage) -> None:
        source, dest, nbytes = received.peer, sent.peer, sent.x.nbytes
        if nbytes != received.x.nbytes or sent.x.dtype != received.x.dtype:
            self._fail(
                MisfitError(
                    f"rank {source} sends {size_of(sent.x)} to rank {dest}, whose {describe(received.op, (received,))} "
                    f"has an out of {size_of(received.x)}; both sides need the same dtype and number of elements"
                )
            )
        copy(received.x, sent.x)
        alpha, beta, _, per_node, alpha_within, beta_within = self.links
        if source // per_node == dest // per_node:
            alpha, beta = alpha_within, beta_within
        ready, seconds = max(sent.posted, received.posted), alpha + nbytes * beta
        left = self._send_free[source] = max(ready, self._send_free[source]) + seconds
        arrived = self._receive_free[dest] = max(ready, self._receive_free[dest]) + seconds
        end = max(left, arrived)
        self.bytes_sent[source] += nbytes
        self.trace.record(sent.posted, end, source, "send", dest, nbytes, sent.tag)
        self.trace.record(received.posted, end, dest, "recv", source, nbytes, received.tag)
        self._complete(sent, end)
        self._complete(received, end)

    def _complete(self, message: SimulatedMessage, end: float) -> None:
        message.completed = end
        waiter, clocks = message.waiter, self.turns.clocks
        for turn, requests in self._any.items():  # few: usually one server
            if message in requests:
                self._complete_any(turn, end)
                return
        if waiter is None:
            return
        clocks[waiter] = max(clocks[waiter], end)
        self._missing[waiter] -= 1
        if not self._missing[waiter]:
            self.resume(waiter, clocks[waiter])

    def wait(self, turn: int, op: str, requests: tuple[SimulatedMessage, ...]) -> None:
        """Let `turn` continue when all `requests` are complete."""
        clock, missing = self.turns.clocks[turn], 0
        for request in requests:
            if request.completed is None:
                request.waiter = turn
                missing += 1
            else:
                clock = max(clock, request.completed)
        if missing:
            self.turns.clocks[turn], self._missing[turn], self.waiting[turn] = clock, missing, (op, requests)
            self.turns.pause(turn)
        else:
            self.turns.advance(turn, clock - self.turns.clocks[turn])

    def resume(self, turn: int, clock: float) -> None:
        """Let `turn`, which has paused, continue at `clock`."""
        self.waiting[turn] = None
        self.turns.clocks[turn] = clock
        self.turns.wake(turn)

    # -- the first of several messages ------------------------------------------------------------------------------

    def wait_any(self, turn: int, op: str, requests: Sequence[SimulatedMessage]) -> int:
        """Let `turn` continue when one of `requests` is complete, and return the index of the first.

        If several are complete at the same time, take the lowest rank's; with a seed, the seed chooses.
        """
        first, times = earliest(requests)
        if first is None or first > self.turns.clocks[turn]:
            self._pause_for_any(turn, op, requests, first)
            first, times = earliest(requests)
        alone = times.count(first) == 1  # counted in C
        at_once = [times.index(first)] if alone else [i for i, end in enumerate(times) if end == first]
        if self._seeded:
            return at_once[int(self._tie() * len(at_once))]
        peers = [requests[i].peer for i in at_once]
        return at_once[peers.index(min(peers))]

    def _pause_for_any(self, turn: int, op: str, requests: Sequence[SimulatedMessage], first: float | None) -> None:
        """Pause until `first`, the earliest known message, or one posted meanwhile that is earlier."""
        self._any[turn] = set(requests)
        self.waiting[turn] = (op, tuple(requests))
        if first is not None:
            self.turns.clocks[turn] = first
            self.turns.wake(turn)
        else:
            self._missing[turn] = 1
        self.turns.pause(turn)
        del self._any[turn]
        self.waiting[turn] = None

    def _complete_any(self, turn: int, end: float) -> None:
        """Let `turn` continue at `end`, when one of its messages is complete, unless another is earlier."""
        if self._missing[turn]:
            self._missing[turn] = 0
            self.turns.clocks[turn] = max(self.turns.clocks[turn], end)
            self.turns.wake(turn)
        elif end < self.turns.clocks[turn]:
            self.turns.wake_earlier(turn, end)

    # -- collectives ------------------------------------------------------------------------------------------------

    def collect(self, rank: int, op: str, x: torch.Tensor | None, root: int | None, combine: Callable, step: float):
        """Wait until every rank has called the same operation; then `combine` their tensors, in rank order.

        Returns the result of `combine` on every rank.
        """
        detail = "" if root is None else f"root={root}"
        self._collective[rank] = (describe(op, (), detail), x, self.turns.clocks[rank])
        self._check_agreement(rank)
        if len(self._collective) < self.p:
            self.waiting[rank] = (op, (), detail)
            self.turns.pause(rank)
            return self._combined
        arrived, self._collective = self._collective, {}
        self._combined = combine([arrived[other][1] for other in range(self.p)])
        end = max(self.turns.clocks[other] for other in arrived) + (self.p - 1).bit_length() * step
        peer = -1 if root is None else root
        for other, (_, tensor, posted) in arrived.items():
            self.trace.record(posted, end, other, op, peer, 0 if tensor is None else tensor.nbytes)
            if other != rank:
                self.resume(other, end)
        self.turns.advance(rank, end - self.turns.clocks[rank])
        return self._combined

    def _check_agreement(self, rank: int) -> None:
        first = next(iter(self._collective))
        (op, x, _), (other_op, y, _) = self._collective[rank], self._collective[first]
        if said := disagreement(rank, (op, size_of(x)), first, (other_op, size_of(y))):
            self._fail(CommError(said))

    def _fail(self, error: CommError) -> NoReturn:
        """Raise `error`, which also ends the run if its rank catches it: a message without bytes, else."""
        self.first_error = self.first_error or error
        raise error


def earliest(requests: Sequence[SimulatedMessage]) -> tuple[float | None, list[float | None]]:
    """Return when the first request is complete, or None, and when each is. A server may ask about a thousand."""
    times = [request.completed for request in requests]
    known = [end for end in times if end is not None] if times.count(None) < len(times) else []
    return min(known, default=None), times


def copy(out: torch.Tensor, x: torch.Tensor) -> None:
    """Copy the elements of `x` into `out`, in order, whatever their shapes.

    The thread may be another rank's: its watchers, such as a memory meter, must not see these tensors.
    """
    if out.shape != x.shape:
        x = x.detach().view(out.shape)
    if x.requires_grad or out.requires_grad:
        x, out = x.detach(), out.detach()
    with torch._C._DisableTorchDispatch():
        out.copy_(x)
