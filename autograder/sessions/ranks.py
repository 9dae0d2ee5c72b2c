"""A student's function on p ranks: the communicator that it gets is the simulated machine of `hpcdl.comm`.

    run = student.ranks("tree_reduce", p, lambda rank: (x[rank].clone(),), {"root": 2})

calls `tree_reduce(x, comm, root=2)` on every rank. What it sent is in `run.trace` and `run.bytes_sent`, what became of
its arguments in `run.arguments`. A deadlock, a message that does not fit and one that nobody receives become a
CheckFailure in the machine's own words; what a rank raises becomes the StudentError that names the rank and the line.

In a notebook the ranks are threads of its kernel. In grading each is a process with the student's cells, which sees the
others only through messages, and the machine that carries those is in the grader's process (see `desk`).

Each rank gets copies of what the check gives it, so whatever a rank does to them, the check's own values stay: `given`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from autograder.boundary.encode import Encoder
from autograder.boundary.peer import Peer
from autograder.boundary.protocol import Frame
from autograder.checks import CheckFailure
from autograder.inside.harnesses import HARNESSES
from hpcdl.comm import CommError, DeadlockError, RankError, Trace

from .copies import copied
from .desk import Desk
from .errors import StudentError


@dataclass(frozen=True)
class Ranks:
    """What p ranks did, as in `hpcdl.comm.Simulation`, and by rank the `arguments` after the call."""

    results: list[Any]
    seconds: float
    trace: Trace
    bytes_sent: list[int]
    arguments: list[tuple]
    careless: list[str] = field(default_factory=list)  # see `inside.under_way`
    given: list[tuple] = field(default_factory=list)  # by rank what the check gave, which no rank can reach
    copies: list[dict[int, Any]] = field(default_factory=list)  # by rank: id of a given value -> the rank's copy

    def after(self, rank: int, value: Any) -> Any:
        """What became on `rank` of `value`, a tensor or list that the check gave, however the rank stored it since."""
        return self.copies[rank][id(value)]


@dataclass(frozen=True)
class RankCall:
    """A call on each of `p` ranks: by rank its arguments, and what the machine is like."""

    name: str
    p: int
    arguments: list[tuple]
    kwargs: dict
    harness: str | None
    machine: dict[str, Any]
    garble: torch.Generator | None = None  # messages arrive as other numbers, which this draws

    def shown(self, peer: Peer) -> Frame:
        """The call on rank 0, for feedback; what cannot be shown is there by its name."""
        shown = (*self.arguments[0], _stand_in("comm"))
        if self.harness is not None:
            shown = tuple(map(_stand_in, HARNESSES[self.harness].shown))
        encoder = Encoder(peer)
        parts = [encoder.write(shown), encoder.write(tuple(self.kwargs.items()))]
        name = self.name if self.p == 1 else f"rank 0 of {self.p}: {self.name}"
        return Frame(["call", ["name", name], *parts, False, None], encoder.buffers)


def copies_for(given: list[tuple]) -> tuple[list[tuple], list[dict[int, Any]]]:
    """By rank a copy of its arguments, and the copies by the id of what they are of."""
    copies: list[dict[int, Any]] = [{} for _ in given]
    return [tuple(copied(arg, memo) for arg in args) for args, memo in zip(given, copies, strict=True)], copies


def _stand_in(name: str) -> Callable:
    def stand_in():
        """Is written as its name."""

    stand_in.__name__ = name
    return stand_in


SIZES = (2, 3)  # numbers of ranks on which runs are kept, to repeat them on those of a real MPI (see `mpi_team`)
EACH = 2  # runs of a function on as many ranks


@dataclass(frozen=True)
class RecordedRun:
    """A run that can be repeated: what the ranks were given, and what they returned and left of it."""

    name: str
    p: int
    harness: str | None
    kwargs: dict
    given: list[tuple]
    results: list
    left: list[tuple]
    shown: Frame | None


# What went wrong, for the student


def explained(p: int, error: CommError, desks: Sequence[Desk | None]) -> BaseException:
    """What to tell the student when the ranks are processes; a rank that never began has no desk."""
    if isinstance(error, DeadlockError):
        return deadlock(p, error, [desk.location if desk else "" for desk in desks])
    for desk in desks:
        if desk and desk.trouble:  # what the machine found, not what the student's side made of it
            return misfit(p, desk.trouble, desk.location)
    if not isinstance(error, RankError):
        return misfit(p, error)
    cause = error.__cause__
    return of_rank(cause, error.rank, p) if isinstance(cause, StudentError) else cause


def of_rank(error: StudentError, rank: int, p: int) -> StudentError:
    """The error of one rank, which says so where there are others."""
    if p > 1 and error.kind in ("exception", "ended", "timeout") and not error.text.startswith(f"rank {rank}:"):
        error.text = f"{error.text} (rank {rank} of {p})".lstrip()
    return error


def misfit(p: int, error: CommError, location: str = "") -> CheckFailure:
    return CheckFailure(f"With p = {p}: {error}" + (f" at {location}." if location else "."))


def deadlock(p: int, error: DeadlockError, locations: list[str] | None = None) -> CheckFailure:
    """The machine's report as feedback; `locations` are the ranks' lines where the machine cannot see them itself."""
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
