"""A student's function on p ranks: the communicator that it gets is the simulated machine of `hpcdl.comm`.

    run = student.ranks("tree_reduce", p, lambda rank: (x[rank].clone(),), {"root": 2})

calls `tree_reduce(x, comm, root=2)` on every rank. What it sent is in `run.trace` and `run.bytes_sent`, what became of
its arguments in `run.arguments`. A deadlock, a message that does not fit and one that nobody receives become a
CheckFailure in the machine's own words; what a rank raises becomes the StudentError that names the rank and the line.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpcdl.comm import CommError, DeadlockError, RankError, Simulation, Trace, simulate

from .checks import CheckFailure
from .encode import Writer
from .limits import TimeUp, time_limit
from .protocol import Frame
from .student import LocalSession, Session, StudentError
from .worker import SignatureError, UndefinedError


@dataclass(frozen=True)
class Ranks:
    """What p ranks did, as in `hpcdl.comm.Simulation`, and by rank the `arguments` after the call."""

    results: list[Any]
    seconds: float
    trace: Trace
    bytes_sent: list[int]
    arguments: list[tuple]


def run_ranks(
    session: Session, name: str, p: int, args_for: Callable[[int], tuple], kwargs: dict | None = None, **machine
) -> Ranks:
    """Call `name(*args_for(rank), comm, **kwargs)` on each of `p` ranks; `machine` is alpha, beta, gamma, seed."""
    if not isinstance(session, LocalSession):
        raise StudentError("ended", "Exercises over several ranks run in the notebook only; grading them comes next.")
    arguments = [tuple(args_for(rank)) for rank in range(p)]
    session.grader.sent = _shown(session, name, p, arguments[0], kwargs or {})
    start = time.monotonic()
    try:
        run = _simulate(session, name, p, arguments, kwargs or {}, machine)
    finally:
        session.left -= time.monotonic() - start
    return Ranks(run.results, run.seconds, run.trace, run.bytes_sent, arguments)


def _simulate(session, name, p, arguments, kwargs, machine) -> Simulation:
    worker = session.worker
    if session.left <= 0:
        raise session.timeout()
    try:
        function = worker.function(name, (*arguments[0], None), kwargs)
        with time_limit(session.left):
            return simulate(lambda comm: function(*arguments[comm.rank], comm, **kwargs), p, **machine)
    except (UndefinedError, SignatureError) as error:
        raise StudentError.of(worker.describe(error)) from None
    except TimeUp:
        raise session.timeout() from None
    except RankError as error:
        problem = StudentError.of(worker.describe(error.__cause__))
        if not problem.text.startswith(f"rank {error.rank}:"):
            problem.text = f"{problem.text} (rank {error.rank} of {p})".lstrip()
        raise problem from None
    except DeadlockError as error:
        raise _deadlock(p, error) from None
    except CommError as error:
        raise CheckFailure(f"With p = {p}: {error}.") from None


def _deadlock(p: int, error: DeadlockError) -> CheckFailure:
    _, *situations = str(error).splitlines()
    advice = [line for line in situations if not line.startswith(("rank", "..."))]
    return CheckFailure(
        f"With p = {p} your function never ends: a deadlock. Every rank that has not returned waits for another.",
        got="\n".join(line for line in situations if line not in advice),
        why=" ".join(advice),
    )


def _shown(session: Session, name: str, p: int, arguments: tuple, kwargs: dict) -> Frame:
    """The call on rank 0, for feedback."""

    def comm():
        """Stands for the communicator."""

    writer = Writer(session.grader)
    parts = [writer.write((*arguments, comm)), writer.write(tuple(kwargs.items()))]
    return Frame(["call", ["name", f"rank 0 of {p}: {name}"], *parts, False, None], writer.buffers)
