"""The grades of a class: one row each in `grades.csv`, one result file with every exercise and check."""

import csv
import io
import os
from pathlib import Path

from autograder.results import LabResult

from .layouts import Submission
from .store import write_json, write_text

COLUMNS = ("student", "lab", "score", "max_score", "status", "message")


def newest_of_each(results: list[tuple[Submission, LabResult]]) -> list[LabResult]:
    """One result for each student and lab: of several notebooks the newest counts, and the result says so."""
    groups: dict[tuple[str, str], list[tuple[Submission, LabResult]]] = {}
    for submission, result in results:
        groups.setdefault((result.student, result.lab), []).append((submission, result))
    return [_newest(groups[key]) for key in sorted(groups)]  # whichever lane was done first


def _newest(group: list[tuple[Submission, LabResult]]) -> LabResult:
    submission, result = max(group, key=lambda pair: pair[0].path.stat().st_mtime if pair[0].path else 0.0)
    if len(group) > 1 and submission.path:
        counts = f"{len(group)} notebooks for this lab; the newest, {submission.path.name!r}, counts"
        result.message = "; ".join(filter(None, [result.message, counts]))
    return result


# Writing


def write(results: list[LabResult], out: Path) -> None:
    """Write `grades.csv` and the result files under `out`."""
    for result in results:
        if result.status == "graded":
            write_json(result, out / safe_name(result.student) / f"{result.lab}.json")
    table = io.StringIO(newline="")
    csv.writer(table).writerows([COLUMNS, *(_row(result) for result in results)])
    write_text(out / "grades.csv", table.getvalue())


def _row(result: LabResult) -> list[str]:
    numbers = (f"{result.score:g}", f"{result.max_score:g}")
    return [neutral(value) for value in (result.student, result.lab, *numbers, result.status, result.summary())]


def neutral(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return "'" + cell if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def printable(name: str) -> str:
    """A file's name as text, also where its bytes are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def safe_name(student: str) -> str:
    """A student's name as the name of one folder inside the results."""
    name = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else "_" for c in student).lstrip(".").strip()
    return name.encode()[:200].decode("utf-8", "ignore") or "_"
