"""The simulated machine: p ranks in this process, in virtual time, with every deadlock explained.

The model (Hockney 1994, extended by gamma): a message of n bytes takes `alpha + n * beta` seconds from the moment when
both sides have posted it; a rank sends one message and receives one at a time; `accumulate` takes `gamma`
seconds per byte.
The machine's own collectives take ceil(log2 p) such steps.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch

from hpcdl.comm.background import Apart
from hpcdl.comm.base import (
    CommError,
    Communicator,
    DeadlockError,
    RankError,
    Request,
    describe,
    disagreement,
    size_of,
)
from hpcdl.comm.location import caller, frames_of_traceback
from hpcdl.comm.tracing import Trace
from hpcdl.comm.turns import Turns

SHOWN = 8  # ranks in a message: more do not fit a screen


@dataclass(frozen=True)
class Simulation:
    """What p ranks returned, by rank, and what it cost: virtual `seconds`, the `trace`, bytes given to send by rank."""

    results: list[Any]
    seconds: float
    trace: Trace
    bytes_sent: list[int]

    def __repr__(self):
        return (
            f"<Simulation of {len(self.results)} ranks: {self.seconds:.3g} s virtual, "
            f"{sum(self.bytes_sent):,} bytes sent, {len(self.trace):,} events>"
        )


def simulate(
    f: Callable,
    p: int,
    *args,
    alpha: float = 0.0,
    beta: float = 0.0,
    gamma: float = 0.0,
    seed: int = 0,
    per_node: int | None = None,
    within: tuple[float, float] | None = None,
) -> Simulation:
    """Call `f(comm, *args)` on each of `p` ranks, 1 to 1024, and return their results and the cost.

    `alpha` s per message, `beta` s per byte, `gamma` s per byte accumulated. With `per_node` (ranks 0 to `per_node`-1
    share the first node, and so on) and `within`, an (alpha, beta) of its own, messages inside a node cost those.
    Ranks that are equally early in virtual time run in an order given by `seed`; the same seed replays the same run.
    The ranks share this process: its global variables, the arguments, and torch's global generator (give each rank a
    `torch.Generator` of its own). Raises DeadlockError, CommError, and RankError (from what a rank raised).
    """
    if type(p) is not int or not 1 <= p <= 1024:
        raise ValueError(f"simulate: p is {p!r}; the number of ranks is an int from 1 to 1024")
    if (per_node is None) != (within is None) or (per_node is not None and per_node < 1):
        raise ValueError(
            f"simulate: per_node is {per_node!r} and within {within!r}; nodes need both: ranks per node, 1 or more, "
            "and (alpha, beta) between the ranks of one node"
        )
    links = _Links(alpha, beta, gamma, per_node or 1, *(within or (alpha, beta)))
    for name, value in links._asdict().items():
        if not value >= 0:
            raise ValueError(f"simulate: {name} is {value!r}; a cost is 0 or more seconds")
    threads = torch.get_num_threads()
    # One rank runs at a time, but each thread would start a pool of its own for large tensors.
    torch.set_num_threads(1)
    try:
        return _Machine(p, links, seed).run(f, args)
    finally:
        torch.set_num_threads(threads)


class _Links(NamedTuple):
    """What messages cost between nodes and within them, and sums."""

    alpha: float
    beta: float
    gamma: float
    per_node: int
    alpha_within: float
    beta_within: float

    def step(self, p: int, nbytes: int) -> float:
        """One step of a machine's own collective over all p ranks: as slow as the slowest of its messages."""
        alpha, beta = (self.alpha, self.beta) if p > self.per_node else (self.alpha_within, self.beta_within)
        return alpha + nbytes * beta


class _Message(Request):
    __slots__ = ("completed", "posted", "waiter")  # the turn that waits for it, None while none does


class _Machine:
    """Matches sends with receives and keeps the time."""

    def __init__(self, p, links: _Links, seed):
        self.p, self.links = p, links
        self.turns = Turns(p, seed)
        self.trace = Trace()
        self.bytes_sent = [0] * p
        self.owners = list(range(p))  # the rank of each turn: ranks first, then what they do in the background
        self.waiting: list[tuple | None] = [None] * p  # what each turn waits for, as `describe` takes it
        self.missing = [0] * p  # how many of the messages that each turn waits for are not complete
        self.unmatched = defaultdict(deque)  # (source, dest, tag) -> messages that one of the two sides has posted
        self.port_free = {"dest": [0.0] * p, "source": [0.0] * p}
        self.collective: dict[int, tuple] = {}  # rank -> (operation, tensor) of those that have arrived

    def run(self, f, args) -> Simulation:
        results = [None] * self.p

        def body(rank):
            results[rank] = f(SimulatedComm(self, rank), *args)

        self.turns.run(body, self.deadlock)
        if self.turns.failed:
            number, error = self.turns.failed
            raise self.failure(self.owners[number], error)
        self.check_nothing_lost()
        return Simulation(results, max(self.turns.clocks), self.trace, self.bytes_sent)

    # -- messages ---------------------------------------------------------------------------------------------------

    def post(self, message: _Message, channel: tuple[int, int, int]) -> _Message:
        """Match a message with the earliest of the other side on (source, dest, tag), or leave it to be matched."""
        message.posted, message.waiter = message.comm.clock(), None
        unmatched = self.unmatched[channel]
        if not unmatched or unmatched[0].side == message.side:
            unmatched.append(message)
        elif message.side == "dest":
            self.transfer(message, unmatched.popleft())
        else:
            self.transfer(unmatched.popleft(), message)
        return message

    def transfer(self, sent: _Message, received: _Message) -> None:
        source, dest, nbytes = received.peer, sent.peer, sent.x.nbytes
        if nbytes != received.x.nbytes or sent.x.dtype != received.x.dtype:
            raise CommError(
                f"rank {source} sends {size_of(sent.x)} to rank {dest}, whose {describe(received.op, (received,))} has "
                f"an out of {size_of(received.x)}; both sides need the same dtype and number of elements"
            )
        _copy(received.x, sent.x)
        outgoing, incoming = self.port_free["dest"], self.port_free["source"]
        start = max(sent.posted, received.posted, outgoing[source], incoming[dest])
        alpha, beta, _, per_node, alpha_within, beta_within = self.links
        if source // per_node == dest // per_node:
            alpha, beta = alpha_within, beta_within
        end = outgoing[source] = incoming[dest] = start + alpha + nbytes * beta
        self.bytes_sent[source] += nbytes
        self.trace.record(sent.posted, end, source, "send", dest, nbytes, sent.tag)
        self.trace.record(received.posted, end, dest, "recv", source, nbytes, received.tag)
        self.complete(sent, end)
        self.complete(received, end)

    def complete(self, message: _Message, end: float) -> None:
        message.done, message.completed = True, end
        waiter, clocks = message.waiter, self.turns.clocks
        if waiter is not None:
            clocks[waiter] = max(clocks[waiter], end)
            self.missing[waiter] -= 1
            if not self.missing[waiter]:
                self.resume(waiter, clocks[waiter])

    def wait(self, rank: int, op: str, requests: tuple[_Message, ...]) -> None:
        clock, missing = self.turns.clocks[rank], 0
        for request in requests:
            if request.done:
                clock = max(clock, request.completed)
            else:
                request.waiter = rank
                missing += 1
        if missing:
            self.turns.clocks[rank], self.missing[rank], self.waiting[rank] = clock, missing, (op, requests)
            self.turns.pause(rank)
        else:
            self.turns.advance(rank, clock - self.turns.clocks[rank])

    def resume(self, rank: int, clock: float) -> None:
        self.waiting[rank] = None
        self.turns.clocks[rank] = clock
        self.turns.wake(rank)

    # -- collectives ------------------------------------------------------------------------------------------------

    def collect(self, rank: int, op: str, x: torch.Tensor | None, root: int | None, combine: Callable, step: float):
        """Wait until every rank has come with the same operation; then `combine` their tensors, in rank order."""
        detail = "" if root is None else f"root={root}"
        self.collective[rank] = (describe(op, (), detail), x, self.turns.clocks[rank])
        self.check_agreement(rank)
        if len(self.collective) < self.p:
            self.waiting[rank] = (op, (), detail)
            self.turns.pause(rank)
            return
        arrived, self.collective = self.collective, {}
        combine([arrived[other][1] for other in range(self.p)])
        end = max(self.turns.clocks[other] for other in arrived) + (self.p - 1).bit_length() * step
        peer = -1 if root is None else root
        for other, (_, tensor, posted) in arrived.items():
            self.trace.record(posted, end, other, op, peer, 0 if tensor is None else tensor.nbytes)
            if other != rank:
                self.resume(other, end)
        self.turns.advance(rank, end - self.turns.clocks[rank])

    def check_agreement(self, rank: int) -> None:
        first = next(iter(self.collective))
        (op, x, _), (other_op, y, _) = self.collective[rank], self.collective[first]
        if said := disagreement(rank, (op, size_of(x)), first, (other_op, size_of(y))):
            raise CommError(said)

    # -- what went wrong --------------------------------------------------------------------------------------------

    def deadlock(self) -> DeadlockError:
        stuck = [rank for rank in range(self.p) if not self.turns.returned[rank]]
        stuck += [number for number in range(self.p, len(self.owners)) if self.waiting[number]]
        lines = ["deadlock: every rank that has not returned waits for another."]
        lines += [self.situation(rank) for rank in stuck[:SHOWN]]
        if len(stuck) > SHOWN:
            lines.append(f"... and {len(stuck) - SHOWN} more ranks wait")
        returned = [rank for rank in range(self.p) if self.turns.returned[rank]]
        if returned:
            ranks = ", ".join(map(str, returned[:SHOWN])) + (", ..." if len(returned) > SHOWN else "")
            lines.append(f"rank{'s' * (len(returned) > 1)} {ranks} returned")
        return DeadlockError("\n".join(lines + self.advice(stuck)))

    def situation(self, number: int) -> str:
        place = caller(self.turns.stack(number))
        who = f"rank {self.owners[number]}" + ("'s background" if number >= self.p else "")
        return f"{who} waits in {describe(*self.waiting[number])}" + (f" at {place.shown()}" if place else "")

    def advice(self, stuck: list[int]) -> list[str]:
        ops = {self.waiting[rank][0] for rank in stuck}
        if ops == {"send"}:
            return [
                "A send completes only when its receiver has posted the recv: use sendrecv, or let one side receive."
            ]
        if ops == {"recv"}:
            return ["All of them receive and none sends: use sendrecv, or let one of them send first."]
        return []

    def failure(self, rank: int, error: BaseException) -> BaseException:
        place = caller(frames_of_traceback(error.__traceback__))
        where = f" at {place.shown()}" if place else ""
        if isinstance(error, CommError):
            return type(error)(f"{error}{where}")
        failure = RankError(f"rank {rank} raised {type(error).__name__}: {error}{where}", rank)
        failure.__cause__ = error
        return failure

    def check_nothing_lost(self) -> None:
        lost = min(chain.from_iterable(self.unmatched.values()), key=lambda message: message.side, default=None)
        if lost:
            did, undone = ("sent", "receiving") if lost.side == "dest" else ("expected", "sending")
            raise CommError(
                f"rank {lost.comm.rank} {did} a message of {size_of(lost.x)} with "
                f"{describe(lost.op, (lost,)).removesuffix('.wait()')}, and rank {lost.peer} returned "
                f"without {undone} it"
            )


class SimulatedComm(Communicator):
    """One rank of the simulated machine; `number` says whose turn and clock: the rank's own, or its background's."""

    def __init__(self, machine: _Machine, rank: int, number: int | None = None):
        self.machine, self.rank, self.size = machine, rank, machine.p
        self.number = rank if number is None else number

    def clock(self) -> float:
        return self.machine.turns.clocks[self.number]

    def background(self):
        return _Beside(self)

    def accumulate(self, out, x, weight=1.0):
        start = self.clock()
        super().accumulate(out, x, weight)
        self.machine.turns.advance(self.number, self.machine.links.gamma * out.nbytes)
        self.machine.trace.record(start, self.clock(), self.rank, "accumulate", -1, out.nbytes)

    def compute(self, seconds):
        if not seconds >= 0:
            raise ValueError(f"rank {self.rank}: compute: seconds is {seconds!r}; work takes 0 or more seconds")
        start = self.clock()
        self.machine.turns.advance(self.number, seconds)
        self.machine.trace.record(start, self.clock(), self.rank, "compute")

    def _isend(self, op, x, dest, tag):
        message = _Message(self, op, "dest", x, dest, tag)
        return self.machine.post(message, (self.rank, dest, tag))

    def _irecv(self, op, out, source, tag):
        message = _Message(self, op, "source", out, source, tag)
        return self.machine.post(message, (source, self.rank, tag))

    def _wait(self, op, *requests):
        self.machine.wait(self.number, op, requests)

    def _broadcast(self, x, root):
        step = self.machine.links.step(self.size, x.nbytes)
        self.machine.collect(self.rank, "broadcast", x, root, partial(_copy_from, root), step)

    def _all_reduce(self, x):
        step = self.machine.links.step(self.size, x.nbytes) + x.nbytes * self.machine.links.gamma
        self.machine.collect(self.rank, "all_reduce", x, None, _sum_everywhere, step)

    def _barrier(self):
        self.machine.collect(self.rank, "barrier", None, None, lambda _: None, self.machine.links.step(self.size, 0))


class _Beside:
    """A background in virtual time: the rank's second clock, on which it communicates while it computes on the first.

    Messages of both share the rank's links.
    """

    def __init__(self, comm: SimulatedComm):
        self.comm, self.machine, self.turns = comm, comm.machine, comm.machine.turns
        self.calls: deque = deque()
        self.busy = self.awaited = False
        self.number = self.turns.spawn(self.live)
        self.machine.owners.append(comm.rank)
        self.machine.waiting.append(None)
        self.machine.missing.append(0)

    def start(self, f):
        self.calls.append((f, self.comm.clock()))
        if not self.busy:
            self.busy = True
            self.wake(self.number, self.comm.clock())

    def wait(self):
        if self.busy:
            self.awaited = True
            self.machine.waiting[self.comm.number] = ("wait", (), "its background")
            self.turns.pause(self.comm.number)
        self.turns.advance(self.comm.number, max(0.0, self.turns.clocks[self.number] - self.comm.clock()))

    def close(self): ...

    def live(self, number: int) -> None:
        comm = Apart(SimulatedComm(self.machine, self.comm.rank, number))
        while True:
            while self.calls:
                f, start = self.calls.popleft()
                self.turns.clocks[number] = max(self.turns.clocks[number], start)
                f(comm)
                f = None  # what it holds must not live until the next call
            self.busy = False
            if self.awaited:
                self.awaited = False
                self.machine.waiting[self.comm.number] = None
                self.wake(self.comm.number, self.comm.clock())
            self.turns.pause(number)

    def wake(self, number: int, clock: float) -> None:
        self.turns.clocks[number] = max(self.turns.clocks[number], clock)
        self.turns.wake(number)


def _copy(out, x):
    """The elements of `x` into `out`, in order, whatever their shapes."""
    if out.shape != x.shape:
        x = x.detach().view(out.shape)
    if x.requires_grad or out.requires_grad:
        x, out = x.detach(), out.detach()
    out.copy_(x)


def _copy_from(root, tensors):
    for tensor in tensors:
        if tensor is not tensors[root]:
            tensor.detach().view(-1).copy_(tensors[root].detach().view(-1))


def _sum_everywhere(tensors):
    total = tensors[0].detach().clone().view(-1)
    for tensor in tensors[1:]:
        total += tensor.detach().view(-1)
    for tensor in tensors:
        _copy(tensor, total)
