"""What the checks said, in a journal next to the notebooks: points outlive the kernel and the page."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcdl.journal import Journal, beside
from hpcdl.moved import is_now

NAME = ".points.jsonl"  # in the folder of the labs; JupyterLab does not list it
VARIABLE = "HPCDL_POINTS"  # another file, or none where it is empty

unsolved: dict[
    str, tuple[str, ...]
] = {}  # by exercise, the functions that its last check in this process found wanting


@dataclass(frozen=True)
class Checked:
    """One check of an exercise ("ddp.ring_all_reduce"): `points` of the `most` there are; None is begun again.

    `code` is the hash of the code that was checked (see `hpcdl.identity`).
    """

    exercise: str
    points: float | None
    most: float = 0.0
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    code: str = ""


def file_in(folder: Path) -> Path | None:
    """Where the points of the labs in `folder` are kept: there, or where $HPCDL_POINTS says; None for nowhere."""
    return beside(folder, NAME, VARIABLE)


class Record:
    """The checks so far, those of earlier kernels included; `path` None keeps them in memory alone."""

    def __init__(self, path: Path | None = None):
        self.journal = Journal(path, _checked)

    @property
    def checks(self) -> list[Checked]:
        """In the order in which they were made."""
        return self.journal.lines

    def add(self, checked: Checked) -> None:
        """Keep it, in the file too where that can be written."""
        self.journal.add(checked)

    def last(self, exercise: str) -> Checked | None:
        """Its last check; None where there is none, or the exercise was begun again since."""
        checked = next((c for c in reversed(self.checks) if is_now(c.exercise, exercise)), None)
        return checked if checked and checked.points is not None else None

    def points(self, exercise: str) -> float:
        """Of its last check."""
        last = self.last(exercise)
        return last.points or 0.0 if last else 0.0

    def best(self, exercise: str) -> float:
        """The most that a version of it ever had."""
        return max((c.points or 0.0 for c in self.checks if is_now(c.exercise, exercise)), default=0.0)


def _checked(content: Any) -> Checked:
    """A check from its line; ValueError or TypeError where it is none."""
    checked = Checked(**content)
    float(checked.points or 0), float(checked.most), datetime.fromisoformat(checked.when)
    if not isinstance(checked.exercise, str) or not isinstance(checked.code, str):
        raise TypeError(f"exercise={checked.exercise!r}: its name is text")
    return checked
