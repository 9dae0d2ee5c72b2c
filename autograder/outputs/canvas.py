"""Fills a column of the gradebook that an instructor exported from Canvas (header and rows: canvas-lms,
`gradebook_exporter.rb`), ready to be imported again."""

import re
from pathlib import Path

from autograder.results import LabResult

from .load import ResultError, one_lab
from .roster import Person, Roster
from .sheet import Filled, Sheet, grade_for, number

_ASSIGNMENT = re.compile(r".+ \(\d+\)")  # the name of an assignment's column ends with its number
_KEPT = ("EX", "N/A")  # excused, or not assigned to this student


def fill(found: list[LabResult], source: Path, out: Path, column: str | None = None) -> Filled:
    """Write `source` with the scores in `column` (default: the assignment's, if one fits) to `out`.

    Scores are scaled to the points that the sheet's `Points Possible` row gives the assignment.
    """
    sheet, filled = Sheet.read(source), Filled()
    where = _column(sheet, one_lab(found), column)
    identity, login, sis, name = (sheet.column(name) for name in ("ID", "SIS Login ID", "SIS User ID", "Student"))
    if identity is None:
        raise ResultError(f"{source} has no column 'ID'; export the gradebook from Canvas and give that file")
    people, possible = [], None
    for index, row in enumerate(sheet.rows[1:], start=1):
        student, number_ = sheet.cell(row, name), sheet.cell(row, identity)
        if student == "Points Possible":
            possible = number(sheet.cell(row, where))
        elif number_:
            people.append(Person(index, number_, (sheet.cell(row, login), sheet.cell(row, sis)), (student,)))
    roster = Roster(found, people)
    for person in people:
        _enter(sheet.rows[person.row], where, person, roster, possible, filled)
    filled.left += roster.left
    sheet.write(out)
    return filled


def _enter(row: list[str], where: int, person: Person, roster: Roster, possible, filled: Filled) -> None:
    row += [""] * (where + 1 - len(row))
    result = roster.results.get(person.row)
    grade = grade_for(result, possible)
    if row[where].strip() in _KEPT:
        filled.left.append(f"{person.label}: the sheet says {row[where].strip()}")
    elif grade:
        row[where] = grade
        filled.rows += 1
    else:
        why = result.message if result else roster.refused.get(person.row, "no submission")
        filled.left.append(f"{person.label}: {why}")


def _column(sheet: Sheet, found: list[LabResult], name: str | None) -> int:
    """Return the assignment's column: the named one, the one with the lab's name in it, or the only one."""
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
