"""Regrade some students, or one exercise of all, and show what changed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from autograder.authoring import Lab
from autograder.results import LabResult

from . import attempts, batch
from .grades import result_file
from .store import write_json
from .submission import Submission


class Change(NamedTuple):
    """A difference from before: an exercise's points, or whether the submission could be graded."""

    student: str
    said: str


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
) -> tuple[list[Change], list[LabResult]]:
    """Grade all of `todo` on the same inputs as before and write their results under `out`.

    Returns the changes, and all current results. With `exercise`, such as `ddp.ring_all_reduce`, other exercises'
    results do not change. A submission that was never graded is skipped; one that can no longer be graded keeps its
    result.
    """
    results, changed = {(result.student, result.lab): result for result in before}, list[Change]()
    done = list(batch.grade_all(todo, secret, only, lanes=lanes, mpi=mpi, allow_weak=allow_weak))
    for now in attempts.counting(done, out, attempts.policy_of(out)):
        then = _before(results, now)
        if then is None:
            continue
        if exercise and now.status == then.status == "graded":
            now = _exchanged(then, now, exercise)
        changed += changes(then, now)
        if now.status == "graded" or then.status == "ungradable":
            del results[then.student, then.lab]
            results[now.student, now.lab] = now
        if now.status == "graded":
            write_json(now, result_file(now, out))
    return changed, list(results.values())


def _before(results: dict[tuple[str, str], LabResult], now: LabResult) -> LabResult | None:
    """Return the student's earlier result for this lab; if a file cannot be graded, its lab may be unknown."""
    same = results.get((now.student, now.lab)) or results.get((now.student, ""))
    own = [result for (student, _), result in results.items() if student == now.student]
    return own[0] if same is None and not now.lab and len(own) == 1 else same


def changes(then: LabResult, now: LabResult) -> Iterator[Change]:
    """Describe the differences."""
    if then.status == now.status:
        before = {exercise.id: exercise.points for exercise in then.exercises}
        for exercise in now.exercises:
            if exercise.points != before.get(exercise.id, 0.0):
                yield Change(now.student, f"{exercise.id} {before.get(exercise.id, 0.0):g} -> {exercise.points:g}")
    elif now.status == "graded":
        yield Change(now.student, f"could not be graded before ({then.message}); now {now.score:g} / {now.max_score:g}")
    else:
        yield Change(now.student, f"can no longer be graded ({now.message}); keeps {then.score:g} points")


def _exchanged(then: LabResult, now: LabResult, exercise: str) -> LabResult:
    """Return `then` with one exercise replaced by `now`'s."""
    new = {each.id: each for each in now.exercises if each.id == exercise}
    return replace(then, exercises=[new.get(each.id, each) for each in then.exercises])
