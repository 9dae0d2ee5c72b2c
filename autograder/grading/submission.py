"""A submission: its owner, its notebook's path, and everything that a batch reads from the file, once."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .owners import attachment

UNASKED = float("-inf")
MOST_REASONS = 10
Beside = tuple[tuple[str, Path], ...]  # files that may come along with a notebook: (name, path)


@dataclass(frozen=True)
class Submission:
    """A student and the file that counts; without a file, `problem` says why.

    A batch reads the file only once: `time` and `order` when it is found, its bytes in `submitted.take`, which makes a
    private copy.
    """

    student: str
    path: Path | None
    problem: str = ""
    time: float = field(default=UNASKED, compare=False)  # when the file was last changed
    beside: Beside = field(default=(), compare=False)
    times: tuple[tuple[str, float], ...] = field(default=(), compare=False)  # (lab or "", times its limits)
    copy: Path | None = field(default=None, compare=False)  # of the file, with the files that come along
    content: Any = field(default=None, compare=False, repr=False)  # the content in memory, if there is no copy
    digest: bytes = field(default=b"", compare=False)  # hash of its bytes, once read
    refused: str = field(default="", compare=False)  # why it could not be read

    def __post_init__(self):
        if self.time == UNASKED:
            object.__setattr__(self, "time", _time_of(self.path))

    def more_time(self, lab: str) -> float:
        """Return what the time limits of `lab` are multiplied by: see `outputs.extensions`."""
        return max((times for of, times in self.times if of in ("", lab)), default=1.0)

    @property
    def order(self) -> tuple[int, float, bytes]:
        """Return the sort key of a student's notebooks: Canvas's number of the upload, then the time, then the name."""
        if self.path is None:
            return 0, 0.0, b""
        return attachment(self.path.name), self.time, os.fsencode(self.path)


def joined(reasons: Iterable[str]) -> str:
    """Return the different reasons as one: the first ten, and how many more there are."""
    found = [*dict.fromkeys(filter(None, reasons))]
    more = [f"and {len(found) - MOST_REASONS} more"] if len(found) > MOST_REASONS else []
    return "; ".join(found[:MOST_REASONS] + more)


def _time_of(path: Path | None) -> float:
    with contextlib.suppress(OSError, ValueError):
        return 0.0 if path is None else os.lstat(path).st_mtime
    return 0.0
