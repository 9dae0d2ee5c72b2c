"""Repeat passed runs on ranks of a real MPI with the same inputs: results must be the same.

It runs once per submission and gives no points, since not every machine has MPI. It adds one check to each exercise
whose functions ran on 2 or 3 ranks and whose own checks have all passed.
"""

import torch

from autograder import checks
from autograder.authoring import Check, Lab
from autograder.boundary.protocol import Foreign
from autograder.inside.book import Moment
from autograder.results import CheckResult, ExerciseResult
from autograder.sessions.mpi_team import SECONDS, Team, team
from autograder.sessions.ranks import RecordedRun
from autograder.sessions.remote import RemoteSession
from autograder.walls.zygote import Zygote
from hpcdl.cluster.launcher import LauncherError

from .run import run_check

ELSEWHERE = (
    "On simulated ranks the same call was right. Look for what depends on the machine: the type of `comm`, the "
    "environment, the clock, or the order in which messages of different ranks arrive."
)


def repeat(lab: Lab, results: list[ExerciseResult], session: RemoteSession, zygote: Zygote) -> list[str]:
    """Add the check to the results of exercises whose runs `session` has kept. Return notes for the student."""
    todo = []
    for exercise, result in zip(lab.exercises.values(), results, strict=True):
        runs = [run for name in exercise.functions for run in session.runs.get(name, [])]
        if runs and result.passed and not result.note:  # a note means that it passed with other code
            hidden = any(check.hidden for check in exercise.checks.values())
            todo.append((result, runs, hidden))
    try:
        while todo:
            todo = _in_one_start(todo, session.cells, zygote)
    except LauncherError as error:
        return [f"nothing was repeated on real MPI ranks: {str(error).splitlines()[0]}"]
    return []


def _in_one_start(todo: list, cells: list, zygote: Zygote) -> list:
    """Repeat exercises until one ends the ranks; return the remaining ones, or none after a time-out."""
    with team(zygote, cells) as ranks:
        for done, (result, runs, hidden) in enumerate(todo, start=1):
            result.checks.append(verdict := judge(ranks, runs, hidden))
            if ranks.failures:
                return [] if verdict.kind == "timeout" else todo[done:]
    return []


def judge(ranks: Team, runs: list[RecordedRun], hidden: bool) -> CheckResult:
    """Return the verdict on the same runs on real ranks; `hidden` if students may not see their inputs."""

    def on_real_ranks(student, rng):
        "On 2 and 3 ranks of a real MPI it gives the same as on simulated ones."
        for run in runs:
            agree(ranks.results(run), run)

    check = Check("on_real_ranks", on_real_ranks, points=0.0, seconds=SECONDS)
    verdict = CheckResult(check.name, check.title, check.points, hidden=hidden)
    run_check(check, verdict, ranks, check.seconds)
    if not verdict.passed:
        verdict.why = ELSEWHERE if verdict.asleep else verdict.why or ELSEWHERE  # a rank that waits for a message
    return verdict


def agree(found: list[tuple], run: RecordedRun) -> None:
    """Raise unless each rank's result and final arguments equal those on simulated ranks up to rounding."""
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
    elif kind not in (Foreign, Moment):  # what did not cross, and virtual times, cannot be compared
        compare = checks.close if kind in (torch.Tensor, float) else checks.equal
        compare(got, expected, name=name, why="It ran with the same inputs on simulated ranks, and had this.")
