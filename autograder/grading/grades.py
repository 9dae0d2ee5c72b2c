"""The grades of a class: one row each in `grades.csv`, one result file with every exercise and check."""

import csv
import hashlib
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from autograder.results import LabResult

from .store import write_json, write_text
from .submission import Submission


class OfStudent(Protocol):
    """The fields of a result needed here."""

    student: str
    lab: str
    message: str
    status: Any

    @property
    def score(self) -> float:
        """Return the points."""


R = TypeVar("R", bound=OfStudent)
COLUMNS = ("student", "lab", "score", "max_score", "status", "message")


def newest_of_each(results: Sequence[tuple[Submission, R]]) -> list[R]:
    """Return one result for each student and lab: of several notebooks the newest counts, with a note."""
    groups: dict[tuple[str, str], list[tuple[Submission, R]]] = {}
    for submission, result in results:
        groups.setdefault((result.student, result.lab), []).append((submission, result))
    return [_newest(groups[key]) for key in sorted(groups)]  # independent of the order in which lanes finish


def _newest(group: list[tuple[Submission, R]]) -> R:
    *older, (submission, result) = sorted(group, key=lambda pair: pair[0].order)
    if older and submission.path:
        result.message = "; ".join(filter(None, [result.message, _choice(submission, result, older)]))
    return result


def _choice(submission: Submission, result: R, older: Sequence[tuple[Submission, R]]) -> str:
    """Say which of a student's notebooks counts and why, with a warning if an older one has more points."""
    path = submission.path
    equal = [other for other, _ in older if other.path and other.order[:2] == submission.order[:2]]
    why = "last by name of those with the newest time" if equal else "newest"
    said = f"{len(older) + 1} notebooks for this lab; the {why}, {path and path.name!r}, counts"
    other, best = max(older, key=lambda pair: pair[1].score)
    if best.score > result.score and other.path:
        said += (
            f" with {result.score:g} points, although {other.path.name!r} has {best.score:g}: see which one is meant"
        )
    return said


# Writing

OWN = (
    "grades.csv",
    "adjustments.csv",
    "groups.csv",
    "extensions.csv",
    "requests.csv",
    "requests.md",
    "instructor.html",
    "feedback",
)  # files that commands write among the students' folders
MOST_BYTES = 200  # of a folder's name; systems allow 255, and files in it need names too
MARKED = re.compile(r"-[0-9a-f]{8}$")


def write(results: Iterable[LabResult], out: Path) -> None:
    """Write `grades.csv` and the result files under `out`; an OSError is raised only after all others are written."""
    problems, table = [], io.StringIO(newline="")
    rows = csv.writer(table)
    rows.writerow(COLUMNS)
    for result in results:
        rows.writerow(_row(result))
        if result.status == "graded":
            try:
                write_json(result, result_file(result, out))
            except OSError as error:
                problems.append(error)
    write_text(out / "grades.csv", table.getvalue())
    if problems:
        raise problems[0]


def result_file(result: LabResult, out: Path) -> Path:
    """Return the result's file under `out`."""
    return out / safe_name(result.student) / f"{result.lab}.json"


def _row(result: LabResult) -> list[str]:
    numbers = (f"{result.score:g}", f"{result.max_score:g}")
    return [neutral(value) for value in (result.student, result.lab, *numbers, result.status, result.summary())]


def neutral(cell: str) -> str:
    """Return a cell that no spreadsheet interprets as a formula."""
    return "'" + cell if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def printable(name: str) -> str:
    """Return a file's name as safe terminal text: bytes that are not UTF-8 and control characters are escaped.

    A backslash is doubled, so that different names stay different.
    """
    if name.isprintable() and "\\" not in name:
        return name
    text = os.fsencode(name.replace("\\", "\\\\")).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def safe_name(student: str) -> str:
    """Return a folder name for a student, different for each student.

    A name that must change, or that one of our files has, ends in a hash of the original name.
    """
    name = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else "_" for c in student).lstrip(".").strip()
    name = _shortened(name, MOST_BYTES) or "_"
    if name == student and name.casefold() not in OWN and not MARKED.search(name):
        return name
    mark = f"-{hashlib.sha256(student.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
    return _shortened(name, MOST_BYTES - len(mark)) + mark


def _shortened(name: str, nbytes: int) -> str:
    return name.encode()[:nbytes].decode("utf-8", "ignore")
