"""Grade one submission: read, parse and run its file, then run the checks of its lab."""

import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from autograder.authoring import Lab
from autograder.inside import source
from autograder.inside.effects import ALL
from autograder.inside.notebook import Notebook, UngradableError
from autograder.results import LabResult
from autograder.sessions.errors import StudentError
from autograder.sessions.parsing import ParsingSession
from autograder.sessions.remote import RemoteSession
from autograder.sessions.session import Session
from autograder.walls import sandbox, scratch
from autograder.walls.zygote import Zygote

from . import other_labs, pace, real_ranks, reference
from .again import look_again
from .alone import ask_again
from .beside import NOTHING, Along
from .follow import follow_through
from .grades import printable
from .run import Limit, called, full, run_lab
from .seeds import seeds
from .submission import Submission
from .submitted import held, lab_of

IMPORTING = {"use_deterministic_algorithms": "torch._inductor.config"}  # calls, and what torch imports within them
NO_SHELL = "Grading runs no shell commands: write files from Python, or hand them in next to the notebook"


def grade(
    submission: Submission, zygote: Zygote, secret: bytes, only: Lab | None = None, mpi: bool = False
) -> LabResult:
    """Return the result of one submission, whatever its content; `only` grades it as that lab, `mpi` also tries real
    ranks."""
    start = time.monotonic()
    student = printable(submission.student)
    try:
        data, along = held(submission)
        result = grade_bytes(
            data, str(submission.path), zygote, student, secret, only, mpi, along, submission.more_time
        )
    except UngradableError as error:
        result = ungradable(submission, only, str(error))
    result.seconds = round(time.monotonic() - start, 3)
    return result


def ungradable(submission: Submission, only: Lab | None, message: str) -> LabResult:
    """Return the result of a submission without a grade, with the reason."""
    slug, points = (only.slug, only.points) if only else ("", 0.0)
    return LabResult(printable(submission.student), slug, points, status="ungradable", message=message)


def grade_bytes(
    data: bytes,
    name: str,
    zygote: Zygote,
    student: str,
    secret: bytes,
    only: Lab | None,
    mpi: bool,
    along: Along = NOTHING,
    more_time: Callable[[str], float] = lambda lab: 1.0,
) -> LabResult:
    """Grade the bytes of a file called `name`, with the files that come along; `more_time` says by a lab's slug what
    its time limits are multiplied by."""
    with scratch.Folder() as folder, ParsingSession(zygote, folder) as session:
        content = session.read(data)
        lab = only or lab_of(content, Path(name))
        lab = lab.with_limits(more_time(lab.slug))
        asleep = content.asleep(lab.functions)
        exercises = [list(exercise.functions) for exercise in lab.exercises.values()]
        statements, notes, code = session.needed(content.cells, exercises)
        cells = along.cells() + statements
        cells += reference.given(lab.slug, tuple(name for e in lab.exercises.values() for name in e.given))
        zygote.preload_lab((*lab.slow_modules, *imported_by(cells)), lab.closed)
        session.opened = lab.opened
        session.load(cells)  # the worker that parsed it may run it: nothing there is worth attacking
        later = functools.partial(pace.limit, zygote)
        notes = content.notes + notes + [*asleep.values()] + along.notes(data)
        result = grade_session(session, notes, lab, student, secret, later)
        missing = ended(session, lab.functions) | {
            name: f"{said[:1].upper()}{said[1:]}." for name, said in asleep.items()
        }
        ask_again(lab, result.exercises, session, seeds(secret, student), later)
    limit = later if any(exercise.ran_out for exercise in result.exercises) else full
    look_again(lab, result.exercises, content, cells, zygote, seeds(secret, student), limit)
    follow_through(lab, result.exercises, cells, zygote, seeds(secret, student), limit)
    if mpi:
        result.notes += real_ranks.repeat(lab, result.exercises, session, zygote)
    say_missing(result, missing)
    result.message = "" if only else other_labs.said(content, lab)
    for exercise, (fingerprint, shapes) in zip(result.exercises, code, strict=True):
        exercise.fingerprint, exercise.shapes = fingerprint, shapes
    return result


def imported_by(cells: list[tuple[str, str]]) -> list[str]:
    """Return the modules that calls in these cells make torch import, which would take each worker seconds."""
    return [module for call, module in IMPORTING.items() if any(call in code for _, code in cells)]


def ended(session: ParsingSession, functions: Iterable[str]) -> dict[str, str]:
    """Return a sentence for each function whose cell ended before it was bound, or does not compile."""
    found = {}
    anything = [label for label in session.places.get(ALL, ()) if label in session.problems]
    for name in functions:
        own = [label for label in session.places.get(name, ()) if label in session.problems or ":" not in label]
        if own or anything:
            label = (own or anything)[-1]
            cell = f"C{label.partition(':')[0][1:]}, which {'defines' if own else 'may define'} it,"
            error = session.problems.get(label)
            found[name] = f"{cell} ended early: {_error(error)}." if error else f"{cell} does not compile."
    return found


def say_missing(result: LabResult, missing: dict[str, str]) -> None:
    """Say in the verdicts why a function is missing although the notebook has it: in a cell of text, for example."""
    for check in (check for exercise in result.exercises for check in exercise.checks):
        name = next((name for name in missing if check.kind == "undefined" and f"`{name}`" in check.message), "")
        if name:
            check.message = check.message.replace(Session.undefined, missing[name])


def grade_notebook(
    content: Notebook, lab: Lab, zygote: Zygote, student: str, secret: bytes, mpi: bool = False
) -> LabResult:
    """Run all checks of `lab` on one of our own notebooks, for `selfcheck`."""
    cells, notes = source.needed(content.cells, lab.functions)
    zygote.preload_lab(lab.slow_modules, lab.closed)
    with scratch.Folder() as folder, RemoteSession(zygote, cells, folder, opened=lab.opened) as session:
        result = grade_session(session, content.notes + notes, lab, student, secret)
    if mpi:
        result.notes += real_ranks.repeat(lab, result.exercises, session, zygote)
    return result


def grade_session(
    session: RemoteSession, notes: list[str], lab: Lab, student: str, secret: bytes, later: Limit = full
) -> LabResult:
    """Run all checks of `lab` on the cells that `session` has run; `later` as in `run_lab`."""
    result = LabResult(student, lab.slug, lab.points, notes=notes, isolation=sandbox.words())
    result.exercises = run_lab(lab, session, seeds(secret, student), later)
    for exercise in result.exercises:
        if not exercise.passed:
            exercise.forbidden += [called(error) for error in session.early.values()]
    result.notes += [f"{label.partition(':')[0]}: {_said(error)}" for label, error in session.problems.items()]
    return result


def _said(error: StudentError) -> str:
    more = f" {NO_SHELL}." if error.type == "FileNotFoundError" else ""
    return f"{_error(error)}.{more} What ran before it counts."


def _error(error: StudentError) -> str:
    return (f"{error.type}: {error.text}" if error.type and error.text else error.text or error.type).rstrip(".")
