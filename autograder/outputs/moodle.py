"""Fills the grading worksheet of a Moodle assignment (columns: moodle, `mod/assign/feedback/offline`) for upload."""

import re
from html import escape
from pathlib import Path

from autograder.results import LabResult

from .load import ResultError, one_lab
from .roster import Person, Roster
from .sheet import Filled, Sheet, grade_for, number

_LAST_NUMBER = re.compile(r"(\d+)\D*$")


def fill(
    found: list[LabResult], source: Path, out: Path, grade: str = "Grade", comments: str = "Feedback comments"
) -> Filled:
    """Write `source` with grades and, where it has that column, comments, to `out`.

    `grade` and `comments` name the columns, for a Moodle in another language. Grades are scaled to `Maximum Grade`.
    """
    sheet, filled = Sheet.read(source), Filled()
    grades, remarks = sheet.column(grade), sheet.column(comments)
    most, changeable = sheet.column("Maximum Grade"), sheet.column("Grade can be changed")
    if grades is None:
        raise ResultError(f"{source} has no column {grade!r}; its columns are {', '.join(sheet.rows[0])}")
    people = [_person(sheet, index, row) for index, row in enumerate(sheet.rows) if index and any(row)]
    roster = Roster(one_lab(found), people)
    for person in people:
        row, result = sheet.rows[person.row], roster.results.get(person.row)
        entered = grade_for(result, number(sheet.cell(row, most)))
        if sheet.cell(row, changeable) == "No":
            filled.left.append(f"{person.label}: the sheet says that the grade cannot be changed")
        elif result and entered:
            row += [""] * (len(sheet.rows[0]) - len(row))
            row[grades] = entered
            if remarks is not None:
                row[remarks] = escape(comment(result))  # Moodle reads this column as HTML
            filled.rows += 1
        else:
            why = result.message if result else roster.refused.get(person.row, "no submission")
            filled.left.append(f"{person.label}: {why}")
    filled.left += roster.left
    sheet.write(out)
    return filled


def comment(result: LabResult) -> str:
    """Return the comment on a grade: which exercises lost points, and what a person has added or taken away."""
    added = [f"{each.reason or 'adjusted'}: {each.points:+g} points" for each in result.adjustments]
    return "; ".join(filter(None, [result.summary(), *added]))


def _person(sheet: Sheet, index: int, row: list[str]) -> Person:
    name, *ids = (sheet.cell(row, sheet.column(n)) for n in ("Full name", "Email address", "Username", "ID number"))
    identity = _LAST_NUMBER.search(row[0])  # "Participant 4711", in the language of the site
    return Person(index, identity[1] if identity else row[0], tuple(ids), (name,))
