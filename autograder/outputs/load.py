"""Read a results folder back, and select what a student may see."""

import csv
import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

from autograder.grading.grades import safe_name
from autograder.results import CheckResult, LabResult

# What a student learns about a failed hidden check: the category, never its inputs.
CATEGORY = {
    "values": "a value that is not the right one",
    "exception": "an exception",
    "timeout": "more time than it may take",
    "memory": "more memory than it may use",
    "ended": "the end of the program",
    "exit": "the end of the program",
    "unsendable": "a value that cannot be checked",
    "forbidden": "a call that the exercise forbids",
}


class ResultError(ValueError):
    """A results folder cannot be used; the message has the file, the value and the rule."""


def results(folder: Path, lab: str | None = None) -> list[LabResult]:
    """Return all results under `folder`, including ungradable ones, by student and lab; `lab` selects one lab.

    Only results with a row in `grades.csv` count. The result file of a replaced submission stays in place but does not
    count.
    """
    rows = _rows(folder / "grades.csv")
    found = _graded(folder, rows)
    found += [_ungradable(row) for row in rows or () if row.get("status") == "ungradable"]
    if not found:
        raise ResultError(
            f"there are no results in {folder}; "
            f"`autograder grade SUBMISSIONS --out {shlex.quote(str(folder))}` writes them"
        )
    kept = [result for result in found if lab is None or result.lab in (lab, "")]
    if not kept:
        raise ResultError(f"there is no result of lab {lab!r} in {folder}; it has {', '.join(labs(found))}")
    return sorted(kept, key=lambda result: (result.student, result.lab))


def replaced(folder: Path) -> list[Path]:
    """Return the result files without a row in `grades.csv`: their submissions were replaced or removed."""
    rows = _rows(folder / "grades.csv")
    named = None if rows is None else _named(folder, rows)
    return [] if named is None else [path for path in _files(folder) if path not in named]


def _graded(folder: Path, rows: list[dict[str, str]] | None) -> list[LabResult]:
    """Return the results in files: the ones named by rows, or all if there are no rows."""
    return [read(path) for path in (_files(folder) if rows is None else _named(folder, rows))]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[!.]*/*.json"))


def _named(folder: Path, rows: list[dict[str, str]]) -> list[Path]:
    pairs = [(plain(row["student"]), plain(row["lab"])) for row in rows if row.get("status") == "graded"]
    return [folder / safe_name(student) / f"{lab}.json" for student, lab in pairs]


def labs(found: list[LabResult]) -> list[str]:
    return sorted({result.lab for result in found if result.lab})


def one_lab(found: list[LabResult]) -> list[LabResult]:
    """Return the results if they are of one lab, since they fill one column of a sheet."""
    if len(labs(found)) > 1:
        raise ResultError(f"the results are of {', '.join(labs(found))}; say which with --lab")
    return found


def read(path: Path) -> LabResult:
    """Read one result file and check its schema, its numbers, and 0 <= score <= max_score."""
    try:
        result = LabResult.from_json(json.loads(path.read_text(encoding="utf-8")))
        bounded(result, path)
    except ResultError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(f"{path} is not a result file ({type(error).__name__}: {error}); grade again") from None
    return result


def bounded(result: LabResult, where: Path | str = "result") -> None:
    """Raise ResultError unless every number is finite and every score is between 0 and its maximum."""
    parts = [(result.student, result.score, result.max_score)]
    parts += [(e.id, e.points, e.max_points) for e in result.exercises]
    parts += [(f"{e.id}.{c.name}", c.points, c.max_points) for e in result.exercises for c in e.checks]
    for name, points, most in parts:
        if not (math.isfinite(points) and math.isfinite(most) and 0 <= points <= most):
            raise ResultError(f"{where}: {name} has {points!r} of {most!r} points; it must be 0 <= points <= maximum")


def scaled(result: LabResult, possible: float | None) -> float:
    """Return the score in a sheet with `possible` points for the lab (None: the lab's own), to 2 decimals."""
    if possible is None or not result.max_score:
        return round(result.score, 2)
    score = round(result.score / result.max_score * possible, 2)
    assert 0 <= score <= possible + 0.005, f"a score of {score} of {possible}"
    return min(score, possible)


def _rows(path: Path) -> list[dict[str, str]] | None:
    """Return the rows of `grades.csv`; None if there is no such file."""
    if not path.is_file():
        return None
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _ungradable(row: dict[str, str]) -> LabResult:
    student, most = plain(row["student"]), float(row["max_score"])
    return LabResult(student, row["lab"], most, status="ungradable", message=row["message"])


def plain(cell: str) -> str:
    """Remove from a cell the quote that keeps spreadsheets from reading a formula."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("=", "+", "-", "@", "\t", "\r") else cell


def for_student(result: LabResult) -> LabResult:
    """Return the result without the instructors' part: details, seeds, and the inputs of hidden checks."""
    exercises = [replace(e, checks=[_check_for_student(check) for check in e.checks]) for e in result.exercises]
    return replace(result, exercises=exercises)


def _check_for_student(check: CheckResult) -> CheckResult:
    if not check.hidden or check.status in ("passed", "skipped"):
        return replace(check, detail="", seed=0)
    said = f"A check that runs only when grading found {CATEGORY.get(check.kind, 'a mistake')}."
    shown = CheckResult(check.name, check.title, check.max_points, check.status, check.kind, said, hidden=True)
    return replace(shown, mistake=check.mistake)  # the author's own sentence: the hint
