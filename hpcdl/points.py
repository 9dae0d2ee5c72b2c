"""Results of checks, in a journal next to the notebooks: points outlive the kernel and the page."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcdl.journal import Journal, beside
from hpcdl.moved import is_now

NAME = ".points.jsonl"  # in the folder of the labs; JupyterLab does not list it
VARIABLE = "HPCDL_POINTS"  # another file, or no file if empty

unsolved: dict[str, tuple[str, ...]] = {}  # by exercise, the functions that failed its last check in this process
solved: set[str] = set()  # exercises that passed all checks, last time in this process


@dataclass(frozen=True)
class Checked:
    """One check of an exercise ("ddp.ring_all_reduce"): `points` out of `most`; None if the exercise was reset.

    `code` is the hash of the code that was checked (see `hpcdl.identity`).
    """

    exercise: str
    points: float | None
    most: float = 0.0
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    code: str = ""


def file_in(folder: Path) -> Path | None:
    """Return the file for the points of the labs in `folder`, or the one that $HPCDL_POINTS names, or None."""
    return beside(folder, NAME, VARIABLE)


class PointsRecord:
    """All checks so far, including those of earlier kernels; `path` None keeps them only in memory."""

    def __init__(self, path: Path | None = None):
        self.journal = Journal(path, _checked)

    @property
    def checks(self) -> list[Checked]:
        """Return all checks in order."""
        return self.journal.lines

    def add(self, checked: Checked) -> None:
        """Store it, also in the file if the file can be written."""
        self.journal.add(checked)

    def last(self, exercise: str) -> Checked | None:
        """Return its last check; None if it was never checked, or was reset since."""
        checked = next((c for c in reversed(self.checks) if is_now(c.exercise, exercise)), None)
        return checked if checked and checked.points is not None else None

    def points(self, exercise: str) -> float:
        """Return the points of its last check."""
        last = self.last(exercise)
        return last.points or 0.0 if last else 0.0

    def best(self, exercise: str) -> float:
        """Return the most points that any version of it has had."""
        return max((c.points or 0.0 for c in self.checks if is_now(c.exercise, exercise)), default=0.0)


def is_solved(exercise: str) -> bool:
    """Return whether the last check of `exercise` gave full points, in this process or in an earlier one."""
    if exercise in unsolved or exercise in solved:
        return exercise in solved
    last = PointsRecord(file_in(Path.cwd())).last(exercise)
    return last is not None and last.points == last.most


def _checked(content: Any) -> Checked:
    """Parse a check from its line; raise ValueError or TypeError if it is not a check."""
    checked = Checked(**content)
    float(checked.points or 0), float(checked.most), datetime.fromisoformat(checked.when)
    if not isinstance(checked.exercise, str) or not isinstance(checked.code, str):
        raise TypeError(f"exercise={checked.exercise!r}: its name is text")
    return checked
