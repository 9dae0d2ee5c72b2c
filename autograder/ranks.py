"""A student's function on p ranks: the communicator that it gets is the simulated machine of `hpcdl.comm`.

    run = student.ranks("tree_reduce", p, lambda rank: (x[rank].clone(),), {"root": 2})

calls `tree_reduce(x, comm, root=2)` on every rank. What it sent is in `run.trace` and `run.bytes_sent`, what became of
its arguments in `run.arguments`. A deadlock, a message that does not fit and one that nobody receives become a
CheckFailure in the machine's own words; what a rank raises becomes the StudentError that names the rank and the line.

In a notebook the ranks are threads of its kernel. In grading each is a process with the student's cells, which sees the
others only through messages, and the machine that carries those is in the grader's process (see `wire`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hpcdl.comm import CommError, DeadlockError, RankError, Simulation, Trace, simulate

from .checks import CheckFailure
from .encode import Writer
from .limits import Stopwatch, TimeUp, time_limit
from .protocol import Frame
from .remote import RemoteSession
from .stages import STAGES
from .student import Session, StudentError, copied
from .wire import Desk
from .worker import SignatureError, UndefinedError


@dataclass(frozen=True)
class Ranks:
    """What p ranks did, as in `hpcdl.comm.Simulation`, and by rank the `arguments` after the call."""

    results: list[Any]
    seconds: float
    trace: Trace
    bytes_sent: list[int]
    arguments: list[tuple]


SIZES = (2, 3)  # numbers of ranks on which runs are kept, to repeat them on those of a real MPI (see `real`)
EACH = 2  # runs of a function on as many ranks


@dataclass(frozen=True)
class Run:
    """A run that can be repeated: what the ranks were given, and what they returned and left of it."""

    name: str
    p: int
    stage: str | None
    kwargs: dict
    given: list[tuple]
    results: list
    left: list[tuple]
    shown: Frame


def run_ranks(
    session: Session,
    name: str,
    p: int,
    args_for: Callable[[int], tuple],
    kwargs: dict | None = None,
    *,
    stage: str | None = None,
    **machine,
) -> Ranks:
    """Call `name(*args_for(rank), comm, **kwargs)` on each of `p` ranks; `machine` is alpha, beta, gamma, seed.

    With a `stage` (see `stages`) that gets the arguments, and calls the function with what it makes of them.
    """
    arguments = [tuple(args_for(rank)) for rank in range(p)]
    session.grader.sent = _shown(session, name, p, arguments[0], kwargs or {}, stage)
    if session.left <= 0:
        raise session.timeout()
    simulated = _in_processes if isinstance(session, RemoteSession) else _in_threads
    kept = isinstance(session, RemoteSession) and p in SIZES
    given = copied(arguments, {}) if kept else []
    run = simulated(session, name, p, arguments, kwargs or {}, stage, machine)
    if kept:
        _keep(session, Run(name, p, stage, kwargs or {}, given, run.results, arguments, session.grader.sent))
    return Ranks(run.results, run.seconds, run.trace, run.bytes_sent, arguments)


def _keep(session: RemoteSession, run: Run) -> None:
    kept = session.runs.setdefault(run.name, [])
    if sum(run.p == other.p for other in kept) < EACH:
        results, left = copied((run.results, run.left), {})  # what the check makes of them is its own
        kept.append(replace(run, results=results, left=left))


def _in_threads(session, name, p, arguments, kwargs, stage, machine) -> Simulation:
    worker, watch = session.worker, Stopwatch()
    try:
        function = worker.on_stage(name, (*arguments[0], None), kwargs, stage)
        with time_limit(session.left), worker.guard.up():
            return simulate(lambda comm: function(*arguments[comm.rank], comm, **kwargs), p, **machine)
    except (UndefinedError, SignatureError) as error:
        raise StudentError.of(worker.describe(error)) from None
    except TimeUp:
        raise session.timeout() from None
    except RankError as error:
        raise of_rank(StudentError.of(worker.describe(error.__cause__)), error.rank, p) from None
    except DeadlockError as error:
        raise _deadlock(p, error) from None
    except CommError as error:
        raise _misfit(p, error) from None
    finally:
        session.left -= watch.seconds()


def _in_processes(session, name, p, arguments, kwargs, stage, machine) -> Simulation:
    team, desks = session.team(p), [None] * p
    for member in team[1:]:
        member.forbid(session.forbidden)
        member.begin(session.left)
        member.seconds, member.denied = session.seconds, session.denied

    def rank(comm):
        desk = desks[comm.rank] = Desk(comm)
        parts = (arguments[comm.rank], kwargs, comm.rank, p, desk.operate, stage)
        return team[comm.rank].timed(["rank", name], parts, None, objects=False)

    left, watches = session.left, [member.stopwatch() for member in team]
    try:
        return simulate(rank, p, **machine)
    except CommError as error:
        session.close()  # every rank stands in the middle of something
        raise _explain(p, error, [desk or Desk(None) for desk in desks]) from None
    finally:
        # One rank runs at a time: what each of them stood in line for a processor, all of them did.
        wall = watches[0].wall()
        session.left = left - max(0.0, wall - sum(wall - watch.seconds() for watch in watches))


def _explain(p: int, error: CommError, desks: list[Desk]) -> Exception:
    """What to tell the student when the ranks are processes."""
    if isinstance(error, DeadlockError):
        return _deadlock(p, error, [desk.place for desk in desks])
    for desk in desks:
        if desk.trouble:  # what the machine found, not what the student's side made of it
            return _misfit(p, desk.trouble, desk.place)
    if not isinstance(error, RankError):
        return _misfit(p, error)
    cause = error.__cause__
    return of_rank(cause, error.rank, p) if isinstance(cause, StudentError) else cause


def of_rank(error: StudentError, rank: int, p: int) -> StudentError:
    """The error of one rank, which says so."""
    if error.kind in ("exception", "ended", "timeout") and not error.text.startswith(f"rank {rank}:"):
        error.text = f"{error.text} (rank {rank} of {p})".lstrip()
    return error


def _misfit(p: int, error: CommError, place: str = "") -> CheckFailure:
    return CheckFailure(f"With p = {p}: {error}" + (f" at {place}." if place else "."))


def _deadlock(p: int, error: DeadlockError, places: list[str] | None = None) -> CheckFailure:
    """The machine's report as feedback; `places` are the ranks' lines where the machine cannot see them itself."""
    _, *lines = str(error).splitlines()
    situations = [line for line in lines if line.startswith(("rank", "..."))]
    if places is not None:
        situations = [_placed(line, places) for line in situations]
    return CheckFailure(
        f"With p = {p} your function never ends: a deadlock. Every rank that has not returned waits for another.",
        got="\n".join(situations),
        why=" ".join(line for line in lines if not line.startswith(("rank", "..."))),
    )


def _placed(situation: str, places: list[str]) -> str:
    match = re.match(r"(rank (\d+) waits in .*\)) at ", situation)
    place = places[int(match[2])] if match else ""
    return f"{match[1]} at {place}" if place else situation


def _shown(session: Session, name: str, p: int, arguments: tuple, kwargs: dict, stage: str | None) -> Frame:
    """The call on rank 0, for feedback; what cannot be shown is there by its name."""
    values = (*arguments, _stand_in("comm")) if stage is None else tuple(map(_stand_in, STAGES[stage].shown))
    writer = Writer(session.grader)
    parts = [writer.write(values), writer.write(tuple(kwargs.items()))]
    return Frame(["call", ["name", f"rank 0 of {p}: {name}"], *parts, False, None], writer.buffers)


def _stand_in(name: str) -> Callable:
    def stand_in():
        """Is written as its name."""

    stand_in.__name__ = name
    return stand_in
