"""Fills a column of the gradebook that an instructor exported from Canvas (header and rows: canvas-lms,
`gradebook_exporter.rb`), ready to be imported again."""

import re
from pathlib import Path

from autograder.results import LabResult

from .load import ResultError, one_lab
from .sheet import Filled, Roster, Sheet, grade_for, number

_ASSIGNMENT = re.compile(r".+ \(\d+\)")  # the name of an assignment's column ends with its number
_KEPT = ("EX", "N/A")  # excused, or not assigned to this student


def fill(found: list[LabResult], source: Path, out: Path, column: str | None = None) -> Filled:
    """Write `source` with the scores in `column` (default: the assignment's, where one fits) to `out`.

    Scores are scaled to the points that the sheet's `Points Possible` row gives the assignment.
    """
    sheet, filled = Sheet.read(source), Filled()
    where = _column(sheet, one_lab(found), column)
    columns = [sheet.column(name) for name in ("ID", "SIS Login ID", "SIS User ID", "Student")]
    if columns[0] is None:
        raise ResultError(f"{source} has no column 'ID'; export the gradebook from Canvas and give that file")
    roster, possible = Roster(found), None
    for row in sheet.rows[1:]:
        student = sheet.cell(row, columns[-1])
        if student == "Points Possible":
            possible = number(sheet.cell(row, where))
        elif identity := sheet.cell(row, columns[0]):
            result = roster.match(identity, *(sheet.cell(row, other) for other in columns[1:]))
            _enter(row, where, student, result, possible, filled)
    filled.left += roster.not_found()
    sheet.write(out)
    return filled


def _enter(row: list[str], where: int, student: str, result: LabResult | None, possible, filled: Filled) -> None:
    row += [""] * (where + 1 - len(row))
    grade = grade_for(result, possible)
    if row[where].strip() in _KEPT:
        filled.left.append(f"{student}: the sheet says {row[where].strip()}")
    elif grade:
        row[where] = grade
        filled.rows += 1
    else:
        filled.left.append(f"{student}: {result.message if result else 'no submission'}")


def _column(sheet: Sheet, found: list[LabResult], name: str | None) -> int:
    """The assignment's column: the one named, the one that has the lab's name in it, or the only one."""
    header = sheet.rows[0]
    assignments = [title for title in header if _ASSIGNMENT.fullmatch(title)]
    if name is not None:
        fitting = [title for title in header if title == name or title.rpartition(" (")[0] == name]
    else:
        lab = next((result.lab for result in found if result.lab), "").replace("_", " ")
        fitting = [title for title in assignments if lab and lab in title.casefold().replace("_", " ")] or assignments
    if len(fitting) != 1:
        raise ResultError(f"say with --column which column to fill, one of: {'; '.join(assignments) or 'none'}")
    return header.index(fitting[0])
