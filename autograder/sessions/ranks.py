"""Call a student's function on p ranks of the simulated machine of `hpcdl.comm`.

    run = student.ranks("tree_reduce", p, lambda rank: (x[rank].clone(),), {"root": 2})

calls `tree_reduce(x, comm, root=2)` on every rank. `run.trace` and `run.bytes_sent` show what it sent, `run.arguments`
its final arguments. A deadlock, a message that does not fit and a message without a receiver become a CheckFailure with
the machine's own text; an error on a rank becomes a StudentError that names the rank and the line.

In a notebook the ranks are threads of its kernel. In grading each is a process with the student's cells, which sees the
others only through messages; the machine that carries them is in the grader's process (see `desk`).

Each rank gets copies of the check's values, so a rank cannot change the originals in `given`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autograder.boundary.encode import Encoder
from autograder.boundary.peer import Peer
from autograder.boundary.protocol import Frame
from autograder.checks import CheckFailure
from autograder.inside.harnesses import HARNESSES
from hpcdl.comm import CommError, DeadlockError, RankError, Trace

from .copies import copied
from .desk import Desk
from .errors import StudentError
from .garbled import Garbling


@dataclass(frozen=True)
class Ranks:
    """The run of p ranks, like `hpcdl.comm.Simulation`, with the `arguments` after the call, by rank."""

    results: list[Any]
    seconds: float
    trace: Trace
    bytes_sent: list[int]
    arguments: list[tuple]
    careless: list[str] = field(default_factory=list)  # see `inside.under_way`
    given: list[tuple] = field(default_factory=list)  # by rank, the check's own values, which no rank can reach
    copies: list[dict[int, Any]] = field(default_factory=list)  # by rank: id of a given value -> the rank's copy

    def after(self, rank: int, value: Any) -> Any:
        """Return the final state on `rank` of `value`, a tensor or list from the check, wherever the rank stored it."""
        return self.copies[rank][id(value)]


@dataclass(frozen=True)
class RankCall:
    """A call on each of `p` ranks: arguments by rank, and the machine's properties."""

    name: str
    p: int
    arguments: list[tuple]
    kwargs: dict
    harness: str | None
    machine: dict[str, Any]
    garble: Garbling | None = None  # how messages change on their way

    def shown(self, peer: Peer) -> Frame:
        """Return the call on rank 0, for feedback; values that cannot be shown appear by name."""
        shown = (*self.arguments[0], _stand_in("comm"))
        if self.harness is not None:
            shown = tuple(map(_stand_in, HARNESSES[self.harness].shown))
        encoder = Encoder(peer)
        parts = [encoder.write(shown), encoder.write(tuple(self.kwargs.items()))]
        name = self.name if self.p == 1 else f"rank 0 of {self.p}: {self.name}"
        return Frame(["call", ["name", name], *parts, False, None], encoder.buffers)


def copies_for(given: list[tuple]) -> tuple[list[tuple], list[dict[int, Any]]]:
    """Return, by rank, copies of its arguments, and the copies by the originals' ids."""
    copies: list[dict[int, Any]] = [{} for _ in given]
    return [tuple(copied(arg, memo) for arg in args) for args, memo in zip(given, copies, strict=True)], copies


def _stand_in(name: str) -> Callable:
    def stand_in():
        """A value that is shown as its name."""

    stand_in.__name__ = name
    return stand_in


SIZES = (2, 3)  # runs on these numbers of ranks are kept, to repeat them on a real MPI (see `mpi_team`)
EACH = 2  # kept runs per function and number of ranks


@dataclass(frozen=True)
class RecordedRun:
    """A repeatable run: the ranks' arguments, results and final arguments."""

    name: str
    p: int
    harness: str | None
    kwargs: dict
    given: list[tuple]
    results: list
    left: list[tuple]
    shown: Frame | None


# What went wrong, for the student


def without_time_of_its_own(harness: str | None, trace: Trace) -> None:
    """Raise CheckFailure if the answer lets virtual time pass: a number of seconds would be a message without bytes."""
    hands_out = harness is not None and (HARNESSES[harness].works or HARNESSES[harness].booked)
    if not hands_out and any(event.op == "compute" for event in trace):
        raise CheckFailure(
            "Your function calls comm.compute, which lets virtual time pass. Leave it to the check, for work that it "
            "hands out."
        )


COMMUNICATOR = "hpcdl.comm.base.Communicator."


def closed_collectives(patterns: Sequence[str], trace: Trace) -> list[str]:
    """Return the machine's own collectives that `patterns` forbid and the ranks called, by public methods or not."""
    closed = {name.removeprefix(COMMUNICATOR): name for name in patterns if name.startswith(COMMUNICATOR)}
    return sorted({closed[event.op] for event in trace if event.op in closed})


def explained(p: int, error: CommError, desks: Sequence[Desk | None]) -> BaseException:
    """Explain an error if the ranks are processes; a rank that never began has no desk."""
    if isinstance(error, DeadlockError):
        return deadlock(p, error, [desk.location if desk else "" for desk in desks])
    for desk in desks:
        if desk and desk.trouble:  # the machine's error, not the student side's version
            return misfit(p, desk.trouble, desk.location)
    if not isinstance(error, RankError):
        return misfit(p, error)
    cause = error.__cause__
    return of_rank(cause, error.rank, p) if isinstance(cause, StudentError) else cause


def of_rank(error: StudentError, rank: int, p: int) -> StudentError:
    """Return the error of one rank, with its number if there are several ranks."""
    if p > 1 and error.kind in ("exception", "ended", "timeout") and not error.text.startswith(f"rank {rank}:"):
        error.text = f"{error.text} (rank {rank} of {p})".lstrip()
    return error


def misfit(p: int, error: CommError, location: str = "") -> CheckFailure:
    return CheckFailure(f"With p = {p}: {error}" + (f" at {location}." if location else "."))


def deadlock(p: int, error: DeadlockError, locations: list[str] | None = None) -> CheckFailure:
    """The machine's report as feedback; `locations` gives the ranks' lines if the machine cannot see them itself."""
    _, *lines = str(error).splitlines()
    situations = [line for line in lines if line.startswith(("rank", "..."))]
    if locations is not None:
        situations = [_located(line, locations) for line in situations]
    return CheckFailure(
        f"With p = {p} your function never ends: a deadlock. Every rank that has not returned waits for another.",
        got="\n".join(situations),
        why=" ".join(line for line in lines if not line.startswith(("rank", "..."))),
    )


def _located(situation: str, locations: list[str]) -> str:
    match = re.match(r"(rank (\d+) waits in .*\))(?: at |$)", situation)
    location = locations[int(match[2])] if match else ""
    return f"{match[1]} at {location}" if match and location else situation
