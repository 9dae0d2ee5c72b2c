"""A journal of what happened to a student's labs, one line of JSON for each event, in a file next to the notebooks.

It only grows, one line at a time, so several notebooks may be open and a crash loses nothing.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Line = TypeVar("Line", bound="DataclassInstance")


def beside(folder: Path, name: str, variable: str) -> Path | None:
    """Return the file `name` in `folder`, or the file that the environment's `variable` names; None if that is
    empty."""
    chosen = os.environ.get(variable)
    return folder / name if chosen is None else Path(chosen) if chosen else None


class Journal(Generic[Line]):
    """Dataclasses in order of arrival, including those of earlier kernels; with `path` None they stay in memory.

    `line(content)` makes a dataclass from a line's JSON; it raises ValueError or TypeError if the line is not ours.
    """

    def __init__(self, path: Path | None, line: Callable[[Any], Line]):
        self.path, self.line = path, line
        self.lines: list[Line] = []
        self.read()

    def read(self) -> None:
        """Read also what other notebooks have written since."""
        if self.path:
            self.lines = [line for text in _texts(self.path) if (line := self._parsed(text))]

    def add(self, line: Line) -> None:
        """Store it, also in the file if the file can be written."""
        self.lines.append(line)
        if self.path:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(line)) + "\n")  # one write: lines of two notebooks do not mix
            except OSError:  # a read-only folder is no reason for a cell to fail
                self.path = None

    def _parsed(self, text: str) -> Line | None:
        try:
            return self.line(json.loads(text))
        except (ValueError, TypeError):  # such as half a line
            return None


def _texts(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
