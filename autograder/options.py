"""Options shared by several commands of `autograder`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hpcdl.commands import end

from . import exercises

SecretFile = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="File with the course's secret (default: HPCDL_SECRET, or one kept in the results).",
    ),
]

Mpi = Annotated[
    bool, typer.Option(help="Repeat what ran on several ranks on those of a real MPI, where there is one: no points.")
]
AsLab = Annotated[str | None, typer.Option(help="Grade every notebook as this lab (default: see for each).")]


class Policy(StrEnum):
    """Which of a student's attempts counts; `grading.attempts` has the rules."""

    last = "last"
    first = "first"
    best = "best"


def lab_named(slug: str | None) -> Any:
    """Return the lab with that slug; exit code 2 lists the labs that exist."""
    if slug is None:
        return None
    if slug not in exercises.LABS:
        raise typer.BadParameter(f"there is no lab {slug!r}; the labs are {', '.join(exercises.LABS)}")
    return exercises.load(slug)


def timed(todo: list[Any], out: Path) -> list[Any]:
    """Return the submissions with the time limits of `out`'s extensions.csv; exit code 1 says what is wrong in it."""
    from .outputs import extensions, load

    try:
        return extensions.timed(todo, out)
    except load.ResultError as error:
        end(str(error), 1)
