"""An instructor's changes to results, in two sheets in the results folder. All exports use them.

`adjustments.csv` has the columns `student, lab, points, of, reason`: points that are added, or taken away where they
are negative (for late days, `autograder late` writes those rows). Where `of` says how many there are, for a written
answer that a person reads, the lab is worth that many more, for everybody. `groups.csv` has the columns `student,
group`: who has handed in nothing has the result of the member who did.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from autograder import exercises
from autograder.results import Adjustment, LabResult

from .load import ResultError, labs, plain
from .sheet import Sheet

ADJUSTMENTS, GROUPS = "adjustments.csv", "groups.csv"
SHARED = "handed in by "  # begins the message of a result that is a group's
COLUMNS = ("student", "lab", "points", "of", "reason")


class Row(NamedTuple):
    """A row of `adjustments.csv`."""

    student: str
    lab: str
    points: float
    of: float
    reason: str


def adjusted(found: list[LabResult], folder: Path) -> list[LabResult]:
    """Return the results with the changes from this folder's sheets, if any."""
    found = shared(found, folder / GROUPS)
    rows = _known(read(folder / ADJUSTMENTS), found, folder / ADJUSTMENTS)
    worth: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row.of:
            worth[row.lab][row.reason] = row.of
    return [_with(result, rows, worth[result.lab]) for result in found]


def read(path: Path) -> list[Row]:
    """The rows of an `adjustments.csv`; none where there is no such file."""
    return [
        Row(student, lab, _number(points, path, student), _number(of or "0", path, student), reason)
        for student, lab, points, of, reason in cells(path, COLUMNS)
    ]


def write(path: Path, rows: list[Row]) -> None:
    """Write an `adjustments.csv`, by student and lab."""
    lines = [
        COLUMNS,
        *((r.student, r.lab, f"{r.points:g}", f"{r.of:g}" if r.of else "", r.reason) for r in sorted(rows)),
    ]
    Sheet([[*line] for line in lines], False, ",", "\n").write(path)


def shared(found: list[LabResult], path: Path) -> list[LabResult]:
    """With a result for each member of a group of `groups.csv` of which one member has one."""
    given = givers(found, path)
    names = {student for student, _ in given}
    kept = [result for result in found if result.status == "graded" or result.student not in names]
    said = {key: f"{SHARED}{best.student}" for key, best in given.items()}
    return [*kept, *(replace(best, student=key[0], message=said[key]) for key, best in given.items())]


def givers(found: list[LabResult], path: Path) -> dict[tuple[str, str], LabResult]:
    """By (member, lab), for who has no result of their own: the best result of the group."""
    groups = defaultdict(list)
    for student, group in cells(path, ("student", "group")):
        groups[group].append(student)
    graded = {(result.student, result.lab): result for result in found if result.status == "graded"}
    given: dict[tuple[str, str], LabResult] = {}
    for members in groups.values():
        for lab in sorted({lab for student, lab in graded if student in members}):
            best = max((graded[m, lab] for m in members if (m, lab) in graded), key=lambda result: result.score)
            given |= {(member, lab): best for member in members if (member, lab) not in graded}
    return given


def _known(rows: list[Row], found: list[LabResult], path: Path) -> list[Row]:
    """The rows of the labs that are asked for; ResultError where one names what there is not."""
    for row in rows:
        if row.lab not in {*exercises.LABS, *labs(found)}:
            raise ResultError(
                f"{path}: {row.student!r} has a row for lab {row.lab!r}; the labs are {', '.join(labs(found))}"
            )
    rows = [row for row in rows if row.lab in labs(found)]
    if absent := {(row.student, row.lab) for row in rows} - {(result.student, result.lab) for result in found}:
        student, lab = min(absent)
        raise ResultError(
            f"{path}: there is no result of {student!r} in lab {lab!r}; correct the name, or leave it out"
        )
    return rows


def _with(result: LabResult, rows: list[Row], worth: dict[str, float]) -> LabResult:
    mine = [row for row in rows if (row.student, row.lab) == (result.student, result.lab)]
    more = sum(worth.values())
    if result.status != "graded" or not (mine or more):
        return result
    adjustments = [Adjustment(row.points, row.reason) for row in mine]
    return replace(result, max_score=result.max_score + more, adjustments=[*result.adjustments, *adjustments])


def _number(cell: str, path: Path, student: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ResultError(f"{path}: {student!r} has {cell!r} points; write a number, such as -10 or 2.5")
    return value


def cells(path: Path, columns: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the cells of these columns, row by row; a missing column is empty, except the first."""
    if not path.is_file():
        return
    sheet = Sheet.read(path)
    places = [sheet.column(name) for name in columns]
    if places[0] is None:
        raise ResultError(f"{path} has the columns {', '.join(sheet.rows[0])}; needed are {', '.join(columns)}")
    for row in sheet.rows[1:]:
        if any(cell.strip() for cell in row):
            yield [plain(sheet.cell(row, place)) for place in places]
