"""More time for some students: `extensions.csv` among the results, with the columns `student, lab, days, time, reason`.

An empty `lab` means every lab. `days` are added to the deadline of `autograder late`; the time limits of checks are
multiplied by `time`. Either may be missing. The sheet applies to the whole course, and the reason stays private:
exports contain nothing of it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from autograder.grading.submission import Submission
from autograder.results import LabResult

from .adjustments import cells
from .load import ResultError

EXTENSIONS = "extensions.csv"
MOST_DAYS, MOST_TIMES = 3660.0, 10.0


class Extension(NamedTuple):
    """A row of the sheet: what is added to a student's deadline, and what their time limits are multiplied by."""

    student: str
    lab: str
    days: float
    times: float

    def holds(self, lab: str) -> bool:
        return self.lab in ("", lab)


def read(folder: Path) -> list[Extension]:
    """Return the rows of the sheet in `folder`; none if there is no such file. Raises ResultError, with the cell."""
    path, rows = folder / EXTENSIONS, []
    for student, lab, days, times in cells(path, ("student", "lab", "days", "time")):
        if not days and not times:
            raise ResultError(f"{path}: {student} has days='' and time=''; write a number into one of them")
        more = _number(days or "0", f"{path}: {student} has days={days!r}", 0.0, MOST_DAYS, "days from 0 on, such as 7")
        said = f"{path}: {student} has time={times!r}"
        rows.append(Extension(student, lab, more, _number(times or "1", said, 1.0, MOST_TIMES, "times from 1 to 10")))
    return rows


def days(folder: Path, lab: str) -> dict[str, float]:
    """Return each student's extra days for `lab`, the largest of their rows."""
    found: dict[str, float] = defaultdict(float)
    for row in read(folder):
        if row.holds(lab):
            found[row.student] = max(found[row.student], row.days)
    return found


def timed(todo: Iterable[Submission], folder: Path) -> list[Submission]:
    """Return the submissions, each with what the sheet in `folder` multiplies its time limits by."""
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in read(folder):
        if row.times > 1:
            found[row.student].append((row.lab, row.times))
    return [replace(each, times=tuple(found.get(each.student, ()))) for each in todo]


def strangers(students: Iterable[str], found: list[LabResult]) -> list[str]:
    """Return a sheet's students without a result: a misspelt name changes nothing."""
    return sorted({*students} - {result.student for result in found})


def _number(text: str, said: str, least: float, most: float, wanted: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise ResultError(f"{said}; write a number of {wanted}")
    return number
