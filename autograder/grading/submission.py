"""A submission: whose it is, where its notebook lies, and all that a batch asks of the file, once."""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .owners import attachment

UNASKED = float("-inf")
Beside = tuple[tuple[str, Path], ...]  # the files that may come along with a notebook: name from its folder, place


@dataclass(frozen=True)
class Submission:
    """A student and the file that counts; without a file, `problem` says why there is none.

    What a batch needs of the file is asked once: `time` and `order` when it is found, its bytes by `submitted.take`,
    which puts a copy where nobody else writes.
    """

    student: str
    path: Path | None
    problem: str = ""
    time: float = field(default=UNASKED, compare=False)  # when the file was last changed
    beside: Beside = field(default=(), compare=False)
    copy: Path | None = field(default=None, compare=False)  # of the file, with what comes along beside it
    content: Any = field(default=None, compare=False, repr=False)  # the same in memory, where there is no copy
    digest: bytes = field(default=b"", compare=False)  # of its bytes, once they were read
    refused: str = field(default="", compare=False)  # why they could not be

    def __post_init__(self):
        if self.time == UNASKED:
            object.__setattr__(self, "time", _time_of(self.path))

    @property
    def order(self) -> tuple[int, float, bytes]:
        """What orders the notebooks of a student: Canvas's number of the upload, then the time, then the name."""
        if self.path is None:
            return 0, 0.0, b""
        return attachment(self.path.name), self.time, os.fsencode(self.path)


def _time_of(path: Path | None) -> float:
    with contextlib.suppress(OSError, ValueError):
        return 0.0 if path is None else os.lstat(path).st_mtime
    return 0.0
