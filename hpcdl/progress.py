"""Where am I? The points of each lab, what is left of it, and when it was last checked: `table()` shows it anywhere."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hpcdl import guesses, labs
from hpcdl.guesses import Ledger
from hpcdl.moved import now
from hpcdl.points import Checked, Record, file_in
from hpcdl.reset import exercises

if TYPE_CHECKING:
    from rich.table import Table

FULL_MARKS = 100  # of every lab


class ProgressError(ValueError):
    """There are no labs whose points could be shown."""


@dataclass(frozen=True)
class LabProgress:
    """A lab's `points` of 100 by the last check of each exercise, the exercises that are `left`, and the last check."""

    name: str
    points: float
    left: list[str]
    checked: datetime | None


def progress(folder: Path | None = None) -> list[LabProgress]:
    """Every lab in `folder` (default: the labs of the current one); raises ProgressError where there are none."""
    folder = labs_in(folder)
    record = Record(file_in(folder))
    return [_of_lab(path.stem, list(names), record) for path, names in by_notebook(folder).items()]


def by_notebook(folder: Path) -> dict[Path, dict[str, None]]:
    """Return the exercises of each notebook by their names of today; one that has moved counts where its lab is now."""
    found: dict[Path, dict[str, None]] = {path: {} for path in labs.current(folder)}
    by_slug = {labs.slug_of(path): path for path in found}
    there = [(path, old, name) for path, old in exercises(folder) if path in found for name in now(old)]
    for path, old, name in sorted(there, key=lambda cell: cell[1] != cell[2]):  # what has moved comes last
        home = path if old == name else by_slug.get(name.partition(".")[0], path)
        found[home][name] = None  # a cell that was copied is the same exercise
    return found


def labs_in(folder: str | os.PathLike | None = None) -> Path:
    """`folder`, or that of the labs of the current one; raises ProgressError where there are none."""
    found = Path(folder) if folder else labs.found(Path.cwd())
    if found is None or not labs.notebooks(found):
        raise ProgressError(f"no labs in {found or Path.cwd()}: say where they are")
    return found


def _of_lab(name: str, names: list[str], record: Record) -> LabProgress:
    checks = {name: checked for name in names if (checked := record.last(name))}
    done = {name for name, checked in checks.items() if checked.points == checked.most}
    left = [exercise.partition(".")[2] for exercise in names if exercise not in done]
    points = sum(checked.points or 0 for checked in checks.values())
    return LabProgress(name, points, left, _latest(checks.values()))


def _latest(checks: Iterable[Checked]) -> datetime | None:
    return max((datetime.fromisoformat(checked.when).astimezone() for checked in checks), default=None)


def table(folder: str | os.PathLike | None = None) -> "Table":
    """Points and what is left, a lab a row, and how good the guesses are.

    A notebook shows it as the last line of a cell, a terminal by `hpcdl progress`.
    """
    from rich.table import Table

    here = labs_in(folder)
    rows, made = progress(here), Ledger(guesses.file_in(here)).guesses.values()
    points, most = sum(row.points for row in rows), FULL_MARKS * len(rows)
    caption = f"{points:g} of {most:g} points\n{guesses.summary(made)}"
    shown = Table("lab", "points", "left", "last checked", caption=caption)
    shown.columns[1].justify = "right"
    for row in rows:
        shown.add_row(row.name.replace("_", " ", 1), f"{row.points:g}", _left(row), _day(row.checked))
    return shown


def _left(row: LabProgress) -> str:
    if not row.left:
        return "✓"
    return ", ".join(row.left) if row.checked else f"all {len(row.left)}"


def _day(when: datetime | None) -> str:
    return f"{when:%d %b %Y %H:%M}" if when else "–"
