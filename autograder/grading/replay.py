"""Repeat the checks of one student's exercise on the report's inputs, for an appeal."""

import json
from pathlib import Path

from autograder import exercises
from autograder.results import ExerciseResult, LabResult
from autograder.sessions.parsing import ParsingSession
from autograder.walls import scratch
from autograder.walls.zygote import Zygote

from .beside import CAME_ALONG, gather
from .layouts import neighbours
from .run import run_exercise
from .submitted import contents, read


class ReplayError(ValueError):
    """The report has no such exercise; the message names the exercises that it has."""


def replay(report: Path, submission: Path, name: str, zygote: Zygote) -> tuple[ExerciseResult, ExerciseResult]:
    """Return the exercise `name` from the report, and its result now with the report's seeds."""
    result = LabResult.from_json(json.loads(report.read_text(encoding="utf-8")))
    before = {exercise.name: exercise for exercise in result.exercises}
    if name not in before:
        raise ReplayError(f"{report} has no exercise {name!r}; it has {', '.join(before) or 'none'}")
    exercise = exercises.load(result.lab).exercises[name]
    seeds = {f"{exercise.id}.{check.name}": check.seed for check in before[name].checks}
    with scratch.Folder() as folder, ParsingSession(zygote, folder) as session:
        data = contents(submission)
        content = session.read(data)
        statements, *_ = session.needed(content.cells, [list(exercise.functions)])
        came = any(note.endswith(CAME_ALONG) for note in result.notes)
        cells = gather(neighbours(submission), read).cells() + statements if came else statements
        session.opened = exercise.lab.opened
        session.load(cells)
        return before[name], run_exercise(exercise, session, lambda check_id: seeds.get(check_id, 0))
