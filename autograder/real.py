"""What passed on simulated ranks runs once more on ranks of a real MPI, with the same inputs, and has to give the same.

It is done once for a submission, and gives no points: not every machine has an MPI. What came of it is reported as one
more check of each exercise whose functions ran on 2 or 3 ranks and whose own checks have all passed.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from hpcdl.cluster.launcher import LauncherError

from . import checks, scratch
from .authoring import Check, Lab
from .places import PATIENCE, Place, places
from .protocol import Foreign
from .ranks import SIZES, Run, of_rank
from .remote import RemoteSession
from .results import CheckResult, ExerciseResult
from .run import run_check
from .student import Grader, Session, StudentError, copied
from .zygote import Zygote

ELSEWHERE = (
    "On simulated ranks the same call was right. Look for what depends on the machine: the type of `comm`, the "
    "environment, the clock, or the order in which messages of different ranks arrive."
)
SECONDS = 10.0  # for all runs of an exercise; a rank that waits for ever takes them all


def repeat(lab: Lab, results: list[ExerciseResult], session: RemoteSession, zygote: Zygote) -> list[str]:
    """Add the check to the results of those exercises whose runs `session` has kept. Returns notes for the student."""
    todo = []
    for exercise, result in zip(lab.exercises.values(), results, strict=True):
        runs = [run for name in exercise.functions for run in session.runs.get(name, [])]
        if runs and result.passed and not result.note:  # with a note it has passed with other code
            hidden = any(check.hidden for check in exercise.checks.values())
            todo.append((result, runs, hidden))
    try:
        while todo:
            todo = _in_one_start(todo, session.cells, zygote)
    except LauncherError as error:
        return [f"nothing was repeated on real MPI ranks: {str(error).splitlines()[0]}"]
    return []


def _in_one_start(todo: list, cells: list, zygote: Zygote) -> list:
    """Repeat exercises until one ends the ranks; those that are left, none of them after one that ran out of time."""
    with team(zygote, cells) as ranks:
        for done, (result, runs, hidden) in enumerate(todo, start=1):
            result.checks.append(verdict := judge(ranks, runs, hidden))
            if ranks.failures:
                return [] if verdict.kind == "timeout" else todo[done:]
    return []


def judge(ranks: "Team", runs: list[Run], hidden: bool) -> CheckResult:
    """The verdict on the same runs on real ranks; `hidden` where students may not see their inputs."""

    def on_real_ranks(student, rng):
        "On 2 and 3 ranks of a real MPI it gives the same as on simulated ones."
        for run in runs:
            agree(ranks.results(run), run)

    check = Check("on_real_ranks", on_real_ranks, points=0.0, seconds=SECONDS)
    verdict = CheckResult(check.name, check.title, check.points, hidden=hidden)
    run_check(check, verdict, ranks, check.seconds)
    if not verdict.passed:
        verdict.why = verdict.why or ELSEWHERE
    return verdict


def agree(found: list[tuple], run: Run) -> None:
    """What each rank returned, and what it left of its arguments, is the same as on simulated ranks up to rounding."""
    for rank, (result, left) in enumerate(found):
        where = f"{run.name} on rank {rank} of {run.p}"
        _same(result, run.results[rank], f"what {where} returned")
        for i, (got, expected) in enumerate(zip(left, run.left[rank], strict=True)):
            _same(got, expected, f"argument {i} of {where}, after the call,")


def _same(got, expected, name: str) -> None:
    kind = type(expected)
    if kind in (list, tuple) and type(got) is kind and len(got) == len(expected):
        for i in range(len(expected)):
            _same(got[i], expected[i], f"{name}[{i}]")
    elif kind is not Foreign:  # of what did not cross there is nothing to compare
        compare = checks.close if kind in (torch.Tensor, float) else checks.equal
        compare(got, expected, name=name, why="It ran with the same inputs on simulated ranks, and had this.")


class Rank(RemoteSession):
    """A worker at one of MPI's places. Its team shares a zygote, and each of it is waited for in its own thread."""

    zygotes = threading.Lock()

    def __init__(self, zygote: Zygote, folder: str, place: Place):
        self.place = place
        super().__init__(zygote, [], folder)

    def start(self) -> None:
        self.spawn()  # and wait for nothing: it is there when all ranks are

    def give_up(self) -> None:
        """Let a thread that waits for this rank find its connection closed."""
        with contextlib.suppress(OSError):
            self.grader.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self.zygotes:
            super().close()

    def end(self) -> int:
        with self.zygotes:
            return super().end()


@contextlib.contextmanager
def team(zygote: Zygote, cells: list) -> Iterator["Team"]:
    """Ranks that will run `cells`, until the block ends; LauncherError where they cannot be had."""
    with contextlib.ExitStack() as stack:
        found, folder = stack.enter_context(places(max(SIZES))), stack.enter_context(scratch.Folder())
        ranks = [stack.enter_context(Rank(zygote, folder, place)) for place in found]
        for rank in ranks:
            Session.begin(rank, PATIENCE)
        if not all(rank.answers() for rank in ranks):
            raise LauncherError("MPI did not start in the sandbox")
        yield Team(ranks, cells)


class Team(Session):
    """Ranks of one MPI, as a check sees them: the first error of any ends them all."""

    def __init__(self, ranks: list[Rank], cells: list):
        super().__init__()
        self.ranks, self.cells, self.grader = ranks, cells, Grader()
        self.failures: list[StudentError] = []

    def begin(self, seconds: float, *, protected: bool = False) -> None:
        super().begin(seconds, protected=protected)
        if self.cells:
            self.everywhere(lambda rank: rank.run_cells(self.cells), len(self.ranks))
            self.cells = []
        for rank in self.ranks:
            Session.begin(rank, seconds)

    def spent(self) -> float:
        """Seconds of the rank that took most."""
        return max(rank.spent() for rank in self.ranks)

    def results(self, run: Run) -> list[tuple]:
        """By rank, what it returned and its arguments after the call."""
        self.grader.sent = run.shown
        return self.everywhere(partial(self._call, run), run.p)

    def _call(self, run: Run, rank: Rank) -> tuple:
        arguments = copied(run.given[rank.place.rank], {})
        parts = (arguments, run.kwargs, rank.place.rank, run.p, None, run.stage)
        return rank.timed(["rank", run.name], parts, None, objects=False), arguments

    def everywhere(self, call, p: int) -> list:
        """What `call(rank)` gives for the first `p` ranks, at the same time."""
        with ThreadPoolExecutor(p) as pool:
            found = list(pool.map(partial(self._attempt, call, p), self.ranks[:p]))
        if self.failures:
            raise self.failures[0]
        return found

    def _attempt(self, call, p: int, rank: Rank):
        try:
            return call(rank)
        except StudentError as error:
            self.failures.append(of_rank(error, rank.place.rank, p))
            for other in self.ranks:  # they wait for this one, and would for all of their time
                other.give_up()
            return None
