"""Late days: from the times of the files, or from a sheet, to rows of `adjustments.csv`; see also `extensions`."""

import math
from datetime import datetime, timedelta
from pathlib import Path

from autograder.grading.submission import Submission
from autograder.results import LabResult

from . import extensions
from .adjustments import ADJUSTMENTS, AdjustmentRow, read, write
from .load import ResultError, one_lab
from .sheet import Sheet

REASON = "late: "  # rows with this prefix are ours, and are rewritten


def enter(
    found: list[LabResult], times: dict[str, datetime], folder: Path, deadline: datetime, per_day: float, free: int
) -> list[AdjustmentRow]:
    """Write a row for each student who is more than `free` days late into the folder's `adjustments.csv`; return these
    rows.

    A day that has begun counts, from the student's own deadline (see `extensions`). Other rows of the sheet stay.
    Raises ResultError if the results are of several labs.
    """
    rows, more = [], extensions.days(folder, found[0].lab if found else "")
    for result in one_lab(found):
        own = deadline + timedelta(days=more.get(result.student, 0.0))
        days = days_late(times[result.student], own) if result.student in times else 0
        if result.status == "graded" and days > free:
            spent = f", {free} of them free" if free else ""
            rows.append(
                AdjustmentRow(
                    result.student, result.lab, -per_day * (days - free), 0.0, f"{REASON}{_days(days)}{spent}"
                )
            )
    lab = found[0].lab
    kept = [row for row in read(folder / ADJUSTMENTS) if row.lab != lab or not row.reason.startswith(REASON)]
    write(folder / ADJUSTMENTS, [*kept, *rows])
    return rows


def days_late(time: datetime, deadline: datetime) -> int:
    """Return the days after the deadline; one that has begun counts."""
    return max(0, math.ceil((time - deadline).total_seconds() / 86400))


def _days(days: int) -> str:
    return f"{days} day{'s' * (days != 1)}"


def times_of_files(todo: list[Submission]) -> dict[str, datetime]:
    """Return, by student, when the newest file was last changed, in this machine's time zone."""
    times: dict[str, datetime] = {}
    for submission in todo:
        if submission.path is not None and submission.time:
            time = datetime.fromtimestamp(submission.time)
            times[submission.student] = max(time, times.get(submission.student, time))
    return times


def times_of_sheet(path: Path) -> dict[str, datetime]:
    """Return these times from a CSV file with the columns `student, time`, such as `ada, 2026-11-20 23:59`."""
    sheet = Sheet.read(path)
    student, time = sheet.column("student"), sheet.column("time")
    if student is None or time is None:
        raise ResultError(f"{path} has the columns {', '.join(sheet.rows[0])}; needed are student, time")
    return {
        sheet.cell(row, student): moment(sheet.cell(row, time)) for row in sheet.rows[1:] if sheet.cell(row, student)
    }


def moment(text: str) -> datetime:
    """Parse a date and time; a time zone is converted to this machine's."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ResultError(f"{text!r} is no date and time; write it as 2026-11-20 23:59") from None
    return found if found.tzinfo is None else found.astimezone().replace(tzinfo=None)
