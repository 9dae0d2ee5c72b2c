"""Requests to look at a grade again: a sheet, the evidence for each of its rows, and the answers.

The sheet has the columns `student, lab, exercise, reason`; a form of your course system can write it. `answer` repeats
each exercise on the report's inputs. It writes `requests.md`, with all that a person needs to decide, and the sheet as
`requests.csv`, with four more columns: the points in the report and those of the repetition, and, for you to fill in,
`grant` (points to add, 0 for none) and `answer`. Given again, its filled-in rows become rows of `adjustments.csv`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from autograder import exercises, feedback
from autograder.grading import grades, store
from autograder.grading.submission import Submission
from autograder.results import ExerciseResult, LabResult

from .adjustments import ADJUSTMENTS, AdjustmentRow, cells, read, write
from .load import ResultError, for_student
from .sheet import Sheet, number

SHEET, EVIDENCE = "requests.csv", "requests.md"
COLUMNS = ("student", "lab", "exercise", "reason", "report", "now", "grant", "answer")
Again = Callable[[Path, Path, str], tuple[ExerciseResult, ExerciseResult]]  # (report, notebook, exercise)
REASON = "request: "  # rows with this prefix are ours, and are rewritten


class RegradeRequest(NamedTuple):
    """A row of the sheet; `grant` is "" as long as it is open."""

    student: str
    lab: str
    exercise: str
    reason: str
    report: str = ""
    now: str = ""
    grant: str = ""
    answer: str = ""


class Answered(NamedTuple):
    """How many requests are open, the rows written, and a sentence for each request whose points differ now."""

    open: int
    rows: list[AdjustmentRow]
    differ: list[str]


def answer(sheet: Path, todo: Sequence[Submission], found: Sequence[LabResult], folder: Path, again: Again) -> Answered:
    """Write the evidence and the sheet into `folder`, and rows of `adjustments.csv` for what is granted.

    `again` repeats an exercise, and returns its result in the report and the one of now. It raises ValueError if it
    cannot. Raises ResultError for a row that names no result, exercise or notebook, or a grant that is not a number.
    """
    requests = [RegradeRequest(*row) for row in cells(sheet, COLUMNS)]
    results = {(result.student, result.lab): result for result in found}
    parts = [_part(request, todo, results, folder, again, sheet) for request in requests]
    rows = [_row(request, sheet) for request, _ in parts if request.grant]
    store.write_text(folder / EVIDENCE, "# Requests\n\n" + "\n".join(text for _, text in parts))
    requests = [request for request, _ in parts]
    Sheet([[*COLUMNS], *(list(request) for request in requests)], False, ",", "\n").write(folder / SHEET)
    kept = [row for row in read(folder / ADJUSTMENTS) if not row.reason.startswith(REASON)]
    if rows or len(kept) < len(read(folder / ADJUSTMENTS)):
        write(folder / ADJUSTMENTS, [*kept, *rows])
    differ = [
        f"{each.student}, {each.exercise}: {each.report} points in the report, {each.now} now"
        for each in requests
        if each.report != each.now
    ]
    return Answered(sum(not request.grant for request in requests), rows, differ)


def _part(
    request: RegradeRequest,
    todo: Sequence[Submission],
    results: dict[tuple[str, str], LabResult],
    folder: Path,
    again: Again,
    sheet: Path,
) -> tuple[RegradeRequest, str]:
    """Return the request with its points, and its part of the evidence."""
    result = results.get((request.student, request.lab))
    if result is None or result.status != "graded":
        raise ResultError(f"{sheet}: there is no result of {request.student!r} in lab {request.lab!r}; correct the row")
    mine = [each for each in todo if each.student == request.student and each.path is not None]
    if request.lab in exercises.LABS:
        mine = [each for each in mine if each.path and request.lab in each.path.name] or mine
    if not mine:
        raise ResultError(f"{sheet}: {request.student!r} has no notebook among the submissions; give the same folder")
    notebook = max(mine, key=lambda each: each.order).path
    assert notebook is not None
    try:
        report = grades.result_file(result, folder)
        before, now = again(report, notebook, request.exercise)
    except ValueError as error:
        raise ResultError(f"{sheet}: {request.student}: {error}") from None
    request = request._replace(report=f"{before.points:g}", now=f"{now.points:g}")
    return request, _evidence(request, notebook, now, result)


def _evidence(request: RegradeRequest, notebook: Path, now: ExerciseResult, result: LabResult) -> str:
    shown = for_student(LabResult(request.student, request.lab, result.max_score, [now])).exercises[0]
    said = f"Granted: {request.grant} points. {request.answer}" if request.grant else "Open."
    return (
        f"## {request.student}, {request.lab}.{request.exercise}\n\n> {request.reason}\n\n"
        f"{notebook.name}: {request.report} points in the report, {request.now} on the same inputs now. {said}\n\n"
        f"```text\n{feedback.text(shown).strip()}\n```\n"
    )


def _row(request: RegradeRequest, sheet: Path) -> AdjustmentRow:
    points = number(request.grant)
    if points is None:
        raise ResultError(
            f"{sheet}: {request.student} has grant={request.grant!r}; write points to add, such as 2, or 0 for none"
        )
    return AdjustmentRow(request.student, request.lab, points, 0.0, REASON + request.exercise, request.answer)
