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
    """A result, or what stands for one."""

    student: str
    lab: str
    message: str
    status: Any

    @property
    def score(self) -> float:
        """The points."""


R = TypeVar("R", bound=OfStudent)
COLUMNS = ("student", "lab", "score", "max_score", "status", "message")


def newest_of_each(results: Sequence[tuple[Submission, R]]) -> list[R]:
    """One result for each student and lab: of several notebooks the newest counts, and the result says so."""
    groups: dict[tuple[str, str], list[tuple[Submission, R]]] = {}
    for submission, result in results:
        groups.setdefault((result.student, result.lab), []).append((submission, result))
    return [_newest(groups[key]) for key in sorted(groups)]  # whichever lane was done first


def _newest(group: list[tuple[Submission, R]]) -> R:
    *older, (submission, result) = sorted(group, key=lambda pair: pair[0].order)
    if older and submission.path:
        result.message = "; ".join(filter(None, [result.message, _choice(submission, result, older)]))
    return result


def _choice(submission: Submission, result: R, older: Sequence[tuple[Submission, R]]) -> str:
    """Which of a student's notebooks counts and why, and loudly if an older one has more points."""
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
    "instructor.html",
    "feedback",
)  # what commands write among the students' folders
MOST_BYTES = 200  # of a folder's name; systems take 255, and files in it have names too
MARKED = re.compile(r"-[0-9a-f]{8}$")


def write(results: Iterable[LabResult], out: Path) -> None:
    """Write `grades.csv` and the result files under `out`; an OSError of one of them comes after all others."""
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
    """Where the result stands under `out`."""
    return out / safe_name(result.student) / f"{result.lab}.json"


def _row(result: LabResult) -> list[str]:
    numbers = (f"{result.score:g}", f"{result.max_score:g}")
    return [neutral(value) for value in (result.student, result.lab, *numbers, result.status, result.summary())]


def neutral(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return "'" + cell if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def printable(name: str) -> str:
    """A file's name as text that no terminal obeys: bytes that are not UTF-8 and control characters are written out.

    A backslash is doubled, so that no two names become one.
    """
    if name.isprintable() and "\\" not in name:
        return name
    text = os.fsencode(name.replace("\\", "\\\\")).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def safe_name(student: str) -> str:
    """A student's name as the name of one folder inside the results, a different one for each student.

    A name that must be changed, or that is taken by a file of ours, ends in a hash of what it was.
    """
    name = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else "_" for c in student).lstrip(".").strip()
    name = _shortened(name, MOST_BYTES) or "_"
    if name == student and name.casefold() not in OWN and not MARKED.search(name):
        return name
    mark = f"-{hashlib.sha256(student.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
    return _shortened(name, MOST_BYTES - len(mark)) + mark


def _shortened(name: str, nbytes: int) -> str:
    return name.encode()[:nbytes].decode("utf-8", "ignore")
