"""A student's progress: each lab's points, what is left, and when it was last checked. `table()` shows it anywhere."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hpcdl import guesses, labs
from hpcdl.guesses import Ledger
from hpcdl.moved import now
from hpcdl.points import Checked, PointsRecord, file_in
from hpcdl.reset import exercises

if TYPE_CHECKING:
    from rich.table import Table

FULL_MARKS = 100  # of every lab


class ProgressError(ValueError):
    """There are no labs to show points for."""


@dataclass(frozen=True)
class LabProgress:
    """A lab's `points` out of 100 from the last check of each exercise, the exercises `left`, and the last check."""

    name: str
    points: float
    left: list[str]
    checked: datetime | None


def progress(folder: Path | None = None) -> list[LabProgress]:
    """Return the progress of every lab in `folder` (default: in the current one); raise ProgressError if it has
    none."""
    folder = labs_in(folder)
    record = PointsRecord(file_in(folder))
    return [_of_lab(path.stem, list(names), record) for path, names in by_notebook(folder).items()]


def by_notebook(folder: Path) -> dict[Path, dict[str, None]]:
    """Return each notebook's exercises by their current names; one that has moved counts in its new lab."""
    found: dict[Path, dict[str, None]] = {path: {} for path in labs.current(folder)}
    by_slug = {labs.slug_of(path): path for path in found}
    there = [(path, old, name) for path, old in exercises(folder) if path in found for name in now(old)]
    for path, old, name in sorted(there, key=lambda cell: cell[1] != cell[2]):  # moved exercises come last
        home = path if old == name else by_slug.get(name.partition(".")[0], path)
        found[home][name] = None  # a cell that was copied is the same exercise
    return found


def labs_in(folder: str | os.PathLike | None = None) -> Path:
    """Return `folder`, or the current folder's labs; raise ProgressError if there are none."""
    found = Path(folder) if folder else labs.found(Path.cwd())
    if found is None or not labs.notebooks(found):
        raise ProgressError(f"no labs in {found or Path.cwd()}: say where they are")
    return found


def _of_lab(name: str, names: list[str], record: PointsRecord) -> LabProgress:
    checks = {name: checked for name in names if (checked := record.last(name))}
    done = {name for name, checked in checks.items() if checked.points == checked.most}
    left = [exercise.partition(".")[2] for exercise in names if exercise not in done]
    points = sum(checked.points or 0 for checked in checks.values())
    return LabProgress(name, points, left, _latest(checks.values()))


def _latest(checks: Iterable[Checked]) -> datetime | None:
    return max((datetime.fromisoformat(checked.when).astimezone() for checked in checks), default=None)


def table(folder: str | os.PathLike | None = None) -> "Table":
    """Show points and open exercises, one row for each lab, and how good the guesses are.

    In a notebook, put it on the last line of a cell; in a terminal, run `hpcdl progress`.
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
