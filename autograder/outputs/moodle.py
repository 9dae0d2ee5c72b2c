"""Fills the grading worksheet of a Moodle assignment (columns: moodle, `mod/assign/feedback/offline`) for upload."""

import re
from html import escape
from pathlib import Path

from autograder.results import LabResult

from .load import ResultError, one_lab
from .sheet import Filled, Roster, Sheet, grade_for, number

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
    names = [sheet.column(name) for name in ("Full name", "Email address", "Username", "ID number")]
    roster = Roster(one_lab(found))
    for row in filter(any, sheet.rows[1:]):
        identity = _LAST_NUMBER.search(row[0])  # "Participant 4711", in the language of the site
        who = [sheet.cell(row, name) for name in names]
        result = roster.match(identity[1] if identity else row[0], *who)
        label = who[0] or row[0]
        entered = grade_for(result, number(sheet.cell(row, most)))
        if sheet.cell(row, changeable) == "No":
            filled.left.append(f"{label}: the sheet says that the grade cannot be changed")
        elif result and entered:
            row += [""] * (len(sheet.rows[0]) - len(row))
            row[grades] = entered
            if remarks is not None:
                row[remarks] = escape(result.summary())  # Moodle reads this column as HTML
            filled.rows += 1
        else:
            filled.left.append(f"{label}: {result.message if result else 'no submission'}")
    filled.left += roster.not_found()
    sheet.write(out)
    return filled
