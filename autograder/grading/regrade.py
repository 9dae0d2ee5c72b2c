"""Grade again what was graded: some students, or one exercise of all, and what has changed by it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from autograder.authoring import Lab
from autograder.results import LabResult

from . import batch
from .grades import newest_of_each, result_file
from .store import write_json
from .submission import Submission


class Change(NamedTuple):
    """An exercise whose points are others than before."""

    student: str
    exercise: str
    before: float
    now: float


def regrade(
    todo: list[Submission],
    before: list[LabResult],
    out: Path,
    secret: bytes,
    exercise: str = "",
    only: Lab | None = None,
    lanes: int = 1,
    mpi: bool = False,
    allow_weak: bool = False,
) -> Iterator[Change]:
    """Grade all of `todo` on the same inputs as before, write their results under `out`, and give what has changed.

    With `exercise`, such as `ddp.ring_all_reduce`, the results of all others stay as they were. A submission that was
    never graded is left out.
    """
    known = {(result.student, result.lab): result for result in before}
    done = list(batch.grade_all(todo, secret, only, lanes=lanes, mpi=mpi, allow_weak=allow_weak))
    for now in newest_of_each(done):
        then = known.get((now.student, now.lab))
        if then is None or now.status != "graded" or then.status != "graded":
            continue
        if exercise:
            now = _exchanged(then, now, exercise)
        write_json(now, result_file(now, out))
        yield from changes(then, now)


def changes(then: LabResult, now: LabResult) -> Iterator[Change]:
    """The exercises whose points are others."""
    before = {exercise.id: exercise.points for exercise in then.exercises}
    for exercise in now.exercises:
        if exercise.points != before.get(exercise.id, 0.0):
            yield Change(now.student, exercise.id, before.get(exercise.id, 0.0), exercise.points)


def _exchanged(then: LabResult, now: LabResult, exercise: str) -> LabResult:
    """`then` with one exercise of `now`."""
    new = {each.id: each for each in now.exercises if each.id == exercise}
    return replace(then, exercises=[new.get(each.id, each) for each in then.exercises])
