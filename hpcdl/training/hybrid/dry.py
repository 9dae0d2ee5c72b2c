"""Run one rank of any mesh in this process without the others: count its messages and drop them.

The trainer runs unchanged, and only its communicator has no peers: so messages, bytes and memory equal a real run's,
even for meshes with more ranks than this machine could hold. The rank receives constants, so the loss means nothing.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from hpcdl.collectives import naive_all_reduce
from hpcdl.comm import Background, Communicator, Request, simulate
from hpcdl.training.hybrid.configuration import Configuration
from hpcdl.training.hybrid.metering import BY_KIND, KINDS

if TYPE_CHECKING:
    from hpcdl.training.trainer import Trainer

COUNTED = ("bytes_sent", "messages", "peak_bytes")  # per rank and step: equal in a dry, a simulated and a live run
NUMBERS = (*COUNTED, *BY_KIND)
EVERY = 16  # up to this many ranks try each one; beyond, only the corners of the mesh
SIMULATED = 8  # up to this many ranks a dry run also simulates all of them together
QUIET = 2.0  # seconds without a word about progress

RECEIVED = 2.0**-10  # each received number: nonzero like a sum of samples, small because products of many layers grow


class DryComm(Communicator):
    """Rank `rank` of `size` without the others: its messages are dropped, and it receives `RECEIVED`."""

    silent = True

    def __init__(self, rank: int, size: int, segment: int | None = None):
        self.rank, self.size, self.segment = rank, size, segment

    def clock(self) -> float:
        return time.perf_counter()

    def _background(self, channel: int) -> Background:
        return _DryBackground(self)

    def _isend(self, op, x, dest, tag):
        return Request(self, op, "dest", x, dest, tag)

    def _irecv(self, op, out, source, tag):
        out.fill_(RECEIVED)
        return Request(self, op, "source", out, source, tag)

    def _wait(self, op, *requests):
        """Return at once: all requests are complete."""

    def _wait_any(self, op, requests):
        return 0

    def _broadcast(self, x, root):
        """Leave `x` unchanged."""

    def _all_reduce(self, x):
        """Leave `x` unchanged: the others add nothing."""

    def _barrier(self):
        """Return at once: there are no other ranks."""


class _DryBackground(Background):
    """Runs calls as late as possible, in `wait`, in a thread: memory is counted per thread."""

    def __init__(self, comm: Communicator):
        self._comm = comm
        self._calls: deque[Callable[[Communicator], None]] = deque()

    def start(self, f: Callable[[Communicator], None]) -> None:
        self._calls.append(f)

    def wait(self) -> None:
        thread = threading.Thread(target=self._run)
        thread.start()
        thread.join()

    def _run(self) -> None:
        while self._calls:
            self._calls.popleft()(self._comm)

    def close(self) -> None:
        self._calls.clear()


def dry_step(configuration: Configuration, rank: int, segment: int | None = None) -> dict[str, Any]:
    """Return the record of a rank's second step, without the others; the first step learns the order of the layers."""
    from hpcdl.training.trainer import Trainer

    records: list[dict[str, Any]] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    comm = DryComm(rank, configuration.ranks, segment)
    try:
        Trainer(comm, configuration.changed(steps=2)).train(records.append, measure=True)
    finally:
        torch.set_num_threads(threads)
    return records[-1]


def corners(configuration: Configuration) -> list[int]:
    """Return all ranks of a small mesh; otherwise the first, second and last along each axis: the others do the same as
    one of them.

    Shares of batch, layers and weights differ by one at most, and the first ranks have the larger ones.
    """
    data, pipeline, tensor, sequence = configuration.mesh
    if configuration.ranks <= EVERY:
        return list(range(configuration.ranks))
    places = product(*(sorted({0, 1 % size, size - 1}) for size in (pipeline, data, sequence, tensor)))
    return sorted(
        ((stage * data + replica) * sequence + position) * tensor + part for stage, replica, position, part in places
    )


def most(records: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return the maximum over ranks, by the names in `COUNTED` and of each kind of message."""
    records = list(records)
    return {name: max(record[name] for record in records) for name in (*COUNTED, *BY_KIND)}


def dry_run(configuration: Configuration, tell: Callable[[str], None] = lambda line: None) -> list[str]:
    """Return what a rank sends and holds in a step: dry, and for up to `SIMULATED` ranks also simulated, with the
    difference. `tell` gets a line of progress every `QUIET` seconds, for a large mesh also at once."""
    ranks, alone = corners(configuration), []
    told = time.monotonic() if configuration.ranks <= SIMULATED else -math.inf
    for done, rank in enumerate(ranks):
        if time.monotonic() - told > QUIET:
            tell(f"dry run    {done} of {len(ranks)} ranks tried")
            told = time.monotonic()
        alone.append(dry_step(configuration, rank))
    if configuration.ranks > SIMULATED:
        tried = (
            f"{len(ranks)} of {configuration.ranks} ranks, one after the other; {SIMULATED} can be simulated together"
        )
        return [f"dry run    {tried}", *truths({"dry": most(alone)})]
    together = simulated_step(configuration)
    said = f"each of {configuration.ranks} ranks alone, then all simulated: loss {together[0]['loss']:.4f}"
    apart = {name: max(abs(a[name] - b[name]) for a, b in zip(alone, together, strict=True)) for name in NUMBERS}
    return [f"dry run    {said}", *truths({"dry": most(alone), "simulated": most(together)}, apart)]


def simulated_step(configuration: Configuration) -> list[dict[str, Any]]:
    """Return the records of all simulated ranks' second step."""
    from hpcdl.training.trainer import Trainer

    def rank(comm: Communicator) -> dict[str, Any]:
        records: list[dict[str, Any]] = []
        Trainer(comm, configuration.changed(steps=2)).train(records.append, measure=True)
        return records[-1]

    return simulate(rank, configuration.ranks).results


def predicted(trainer: "Trainer") -> list[dict[str, int]]:
    """Return what each rank of this run will send and hold in a step, from its dry run; all ranks call it."""
    alone = dry_step(trainer.configuration, trainer.comm.rank, trainer.comm.segment)
    return _of_all_ranks(trainer, alone)


def compared(trainer: "Trainer", record: dict[str, Any], dry: list[dict[str, int]]) -> list[str]:
    """Return a table of what this run's ranks sent and held in the step of `record`, and the values of `predicted`; all
    ranks call it.

    A step whose batch differs from the second step's, at the end of an epoch, is not compared: then there is no table.
    """
    run = _of_all_ranks(trainer, record)
    if record["samples"] != trainer.configuration.batch or record["step"] == 1:
        return []
    apart = {name: max(abs(a[name] - b[name]) for a, b in zip(dry, run, strict=True)) for name in NUMBERS}
    return [
        f"step {record['step']} as it was predicted, and as it was:",
        *truths({"dry": most(dry), "run": most(run)}, apart),
    ]


def _of_all_ranks(trainer: "Trainer", record: dict[str, Any]) -> list[dict[str, int]]:
    """Return the numbers of every rank's record."""
    comm = trainer.comm
    found = torch.zeros(comm.size, len(NUMBERS), dtype=torch.float64, device=comm.devices[0])
    found[comm.rank] = torch.tensor([record[name] for name in NUMBERS])
    naive_all_reduce(found, comm)
    return [dict(zip(NUMBERS, row, strict=True)) for row in found.long().tolist()]


def sent(ranks: list[dict[str, int]]) -> str:
    """Return the line about the bytes of each kind that a rank sends at most, from `predicted`."""
    found = most(ranks)
    kinds = [f"{kind} {found[name]:,}" for kind, name in zip(KINDS, BY_KIND, strict=True) if found[name]]
    return f"dry run    a rank sends at most these bytes in a step: {', '.join(kinds) or 'none'}"


def truths(found: dict[str, dict[str, int]], apart: dict[str, int] | None = None) -> list[str]:
    """Return a table of the most that a rank sends and holds, with a column for each method, and of each kind sent.

    The last column shows the largest difference of any rank, `apart`; without it, the difference of the columns.
    """
    lines = [
        f"{'a rank, at most':<16}" + "".join(f"{name:>14}" for name in found) + "    difference" * (len(found) > 1)
    ]
    labels = {name: name.replace("_", " ") for name in COUNTED}
    labels |= {name: f"sent: {kind}" for kind, name in zip(KINDS, BY_KIND, strict=True)}
    for name, label in labels.items():
        values = [each.get(name, 0) for each in found.values()]
        if name in COUNTED or any(values):
            difference = apart[name] if apart else max(values) - min(values)
            numbers = [*values, difference] if len(values) > 1 else values
            lines.append(f"{label:<18}{numbers[0]:>12,}" + "".join(f"{number:>14,}" for number in numbers[1:]))
    return lines
