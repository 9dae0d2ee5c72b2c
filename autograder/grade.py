"""Grades a folder of submissions: one row each in `grades.csv`, one result file with every exercise and check."""

import contextlib
import csv
import functools
import os
import secrets
import time
from pathlib import Path

from . import notebook, pace, real, sandbox, scratch, source
from .authoring import Lab
from .follow import follow_through
from .layouts import Submission
from .notebook import Notebook, UngradableError
from .reading import Reader
from .remote import RemoteSession
from .results import LabResult
from .run import Limit, full, run_lab, seeds
from .store import replace, write_json
from .zygote import Zygote

COLUMNS = ("student", "lab", "score", "max_score", "status", "message")


def grade(
    submission: Submission, zygote: Zygote, secret: bytes, only: Lab | None = None, mpi: bool = False
) -> LabResult:
    """The result of one submission, whatever it is; `only` grades it as that lab, `mpi` also tries real ranks."""
    start = time.monotonic()
    student = printable(submission.student)
    try:
        if submission.path is None:
            raise UngradableError(submission.problem)
        result = grade_file(submission.path, zygote, student, secret, only, mpi)
    except UngradableError as error:
        result = ungradable(submission, only, str(error))
    result.seconds = round(time.monotonic() - start, 3)
    return result


def ungradable(submission: Submission, only: Lab | None, message: str) -> LabResult:
    """The result of a submission that has no grade, with the reason."""
    slug, points = (only.slug, only.points) if only else ("", 0.0)
    return LabResult(printable(submission.student), slug, points, status="ungradable", message=message)


def grade_file(path: Path, zygote: Zygote, student: str, secret: bytes, only: Lab | None, mpi: bool) -> LabResult:
    """Run all checks of a notebook file's lab against the functions that it defines."""
    data = notebook.contents(path)
    with scratch.Folder() as folder, Reader(zygote, folder) as session:
        content = session.read(data)
        lab = only or notebook.lab_of(content, path)
        exercises = [list(exercise.functions) for exercise in lab.exercises.values()]
        cells, notes, prints = session.needed(content.cells, exercises)
        session.load(cells)  # where it was read it may run: it has nothing to gain there by either
        later = functools.partial(pace.limit, zygote)
        result = grade_session(session, content.notes + notes, lab, student, secret, later)
    limit = later if any(exercise.ran_out for exercise in result.exercises) else full
    follow_through(lab, result.exercises, cells, zygote, seeds(secret, student), limit)
    if mpi:
        result.notes += real.repeat(lab, result.exercises, session, zygote)
    for exercise, fingerprint in zip(result.exercises, prints, strict=True):
        exercise.fingerprint = fingerprint
    return result


def grade_notebook(
    content: Notebook, lab: Lab, zygote: Zygote, student: str, secret: bytes, mpi: bool = False
) -> LabResult:
    """Run all checks of `lab` against a notebook of our own, as `selfcheck` does."""
    cells, notes = source.needed(content.cells, functions(lab))
    with scratch.Folder() as folder, RemoteSession(zygote, cells, folder) as session:
        result = grade_session(session, content.notes + notes, lab, student, secret)
    if mpi:
        result.notes += real.repeat(lab, result.exercises, session, zygote)
    return result


def functions(lab: Lab) -> list[str]:
    return [name for exercise in lab.exercises.values() for name in exercise.functions]


def grade_session(
    session: RemoteSession, notes: list[str], lab: Lab, student: str, secret: bytes, later: Limit = full
) -> LabResult:
    """Run all checks of `lab` against the cells that `session` has run; `later` as in `run_lab`."""
    result = LabResult(student, lab.slug, lab.points, notes=notes, isolation=sandbox.words())
    result.exercises = run_lab(lab, session, seeds(secret, student), later)
    result.notes += [f"{label.partition(':')[0]}: {_said(error)}" for label, error in session.problems.items()]
    return result


def _said(error) -> str:
    return f"{error.type}: {error.text}" if error.type else error.text


def newest_of_each(results: list[tuple[Submission, LabResult]]) -> list[LabResult]:
    """One result for each student and lab: of several notebooks the newest counts, and the result says so."""
    groups: dict[tuple[str, str], list[tuple[Submission, LabResult]]] = {}
    for submission, result in results:
        groups.setdefault((result.student, result.lab), []).append((submission, result))
    return [_newest(groups[key]) for key in sorted(groups)]  # whichever lane was done first


def _newest(group: list[tuple[Submission, LabResult]]) -> LabResult:
    submission, result = max(group, key=lambda pair: pair[0].path.stat().st_mtime if pair[0].path else 0.0)
    if len(group) > 1:
        counts = f"{len(group)} notebooks for this lab; the newest, {submission.path.name!r}, counts"
        result.message = "; ".join(filter(None, [result.message, counts]))
    return result


# Writing


def write(results: list[LabResult], out: Path) -> None:
    """Write `grades.csv` and the result files under `out`."""
    for result in results:
        if result.status == "graded":
            write_json(result, out / safe_name(result.student) / f"{result.lab}.json")
    rows = [_row(result) for result in results]
    replace(out / "grades.csv", lambda file: csv.writer(file).writerows([COLUMNS, *rows]))


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


def course_secret(out: Path, file: Path | None = None) -> bytes:
    """The secret behind the seeds: that of `file`, HPCDL_SECRET of the environment, or one made for `out` and kept."""
    if file is not None:
        return file.read_bytes().strip()
    if given := os.environ.get("HPCDL_SECRET"):
        return given.encode()
    path = out / ".secret"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        temporary = out / f".secret.{os.getpid()}"
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as made:
            made.write(secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):  # one that another grader has just made counts
            os.link(temporary, path)
        temporary.unlink()
    return path.read_bytes().strip()
