"""What the checks said, a line for each, in a file beside the notebooks: points outlive the kernel and the page.

Only ever appended to, a line at a time, so that several notebooks may be open and a crash loses nothing.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

NAME = ".points.jsonl"  # in the folder of the labs; JupyterLab does not list it
VARIABLE = "HPCDL_POINTS"  # another file, or none where it is empty


@dataclass(frozen=True)
class Checked:
    """One check of an exercise ("ddp.ring_all_reduce"): `points` of the `most` there are; None is begun again."""

    exercise: str
    points: float | None
    most: float = 0.0
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


def file_in(folder: Path) -> Path | None:
    """Where the points of the labs in `folder` are kept: there, or where $HPCDL_POINTS says; None for nowhere."""
    chosen = os.environ.get(VARIABLE)
    return folder / NAME if chosen is None else Path(chosen) if chosen else None


class Record:
    """The checks so far, those of earlier kernels included; `path` None keeps them in memory alone."""

    def __init__(self, path: Path | None = None):
        self.path, self.checks = path, _read(path) if path else []

    def add(self, checked: Checked) -> None:
        """Keep it, in the file too where that can be written."""
        self.checks.append(checked)
        if self.path:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(checked)) + "\n")  # one write: lines of two notebooks do not mix
            except OSError:  # a folder that is only to be read: points are no reason for a check to fail
                self.path = None

    def last(self, exercise: str) -> Checked | None:
        """Its last check; None where there is none, or the exercise was begun again since."""
        checked = next((c for c in reversed(self.checks) if c.exercise == exercise), None)
        return checked if checked and checked.points is not None else None

    def points(self, exercise: str) -> float:
        """Of its last check."""
        last = self.last(exercise)
        return last.points or 0.0 if last else 0.0

    def best(self, exercise: str) -> float:
        """The most that a version of it ever had."""
        return max((c.points or 0.0 for c in self.checks if c.exercise == exercise), default=0.0)


def _read(path: Path) -> list[Checked]:
    """The lines of the file; what is none of ours, such as half a line, is passed over."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [checked for line in lines if (checked := _parsed(line))]


def _parsed(line: str) -> Checked | None:
    try:
        checked = Checked(**json.loads(line))
        float(checked.points or 0), float(checked.most), datetime.fromisoformat(checked.when)
    except (ValueError, TypeError):
        return None
    return checked if isinstance(checked.exercise, str) else None
