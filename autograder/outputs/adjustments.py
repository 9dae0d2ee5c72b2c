"""An instructor's changes to results, in two sheets in the results folder. All exports use them.

`adjustments.csv` has the columns `student, lab, points, of, reason`: points to add, or to subtract if negative
(`autograder late` writes these rows for late days). `of` gives the maximum, for a written answer that a person grades
(`autograder marks` writes these rows); the lab is then worth that many points more for all students. An optional column
`comment` is for the one student, after the reason. `groups.csv` has the columns `student, group`: a member
who handed in nothing gets the result of the member who did.
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
SHARED = "handed in by "  # prefix of the message of a group's result
COLUMNS = ("student", "lab", "points", "of", "reason")
COMMENT = "comment"  # a column that a sheet need not have


class AdjustmentRow(NamedTuple):
    """A row of `adjustments.csv`."""

    student: str
    lab: str
    points: float
    of: float
    reason: str
    comment: str = ""

    @property
    def said(self) -> str:
        """Return the reason, and the comment if there is one."""
        return f"{self.reason}: {self.comment}" if self.comment else self.reason


def adjusted(found: list[LabResult], folder: Path) -> list[LabResult]:
    """Return the results with the changes from this folder's sheets, if any."""
    found = shared(found, folder / GROUPS)
    rows = _known(read(folder / ADJUSTMENTS), found, folder / ADJUSTMENTS)
    worth: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row.of:
            worth[row.lab][row.reason] = row.of
    return [_with(result, rows, worth[result.lab]) for result in found]


def read(path: Path) -> list[AdjustmentRow]:
    """Read the rows of an `adjustments.csv`; empty if there is no such file."""
    return [
        AdjustmentRow(student, lab, _number(points, path, student), _number(of or "0", path, student), reason, comment)
        for student, lab, points, of, reason, comment in cells(path, (*COLUMNS, COMMENT))
    ]


def write(path: Path, rows: list[AdjustmentRow]) -> None:
    """Write an `adjustments.csv`, by student and lab."""
    width = len(COLUMNS) + any(row.comment for row in rows)
    lines = [
        (r.student, r.lab, f"{r.points:g}", f"{r.of:g}" if r.of else "", r.reason, r.comment) for r in sorted(rows)
    ]
    Sheet([[*line[:width]] for line in [(*COLUMNS, COMMENT), *lines]], False, ",", "\n").write(path)


def shared(found: list[LabResult], path: Path) -> list[LabResult]:
    """Give each member of a group in `groups.csv` a result, if one member has one."""
    given = givers(found, path)
    names = {student for student, _ in given}
    kept = [result for result in found if result.status == "graded" or result.student not in names]
    said = {key: f"{SHARED}{best.student}" for key, best in given.items()}
    return [*kept, *(replace(best, student=key[0], message=said[key]) for key, best in given.items())]


def givers(found: list[LabResult], path: Path) -> dict[tuple[str, str], LabResult]:
    """Return the group's best result, by (member, lab), for members without a result."""
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


def _known(rows: list[AdjustmentRow], found: list[LabResult], path: Path) -> list[AdjustmentRow]:
    """Return the rows of the requested labs; raise ResultError if one names an unknown student or lab."""
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


def _with(result: LabResult, rows: list[AdjustmentRow], worth: dict[str, float]) -> LabResult:
    mine = [row for row in rows if (row.student, row.lab) == (result.student, result.lab)]
    more = sum(worth.values())
    if result.status != "graded" or not (mine or more):
        return result
    adjustments = [Adjustment(row.points, row.said) for row in mine]
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
