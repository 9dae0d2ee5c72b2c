"""Temporary folders during grading. The next grader removes what a killed grader has left behind.

A folder is held by a lock that the system releases when the process ends in any way: unlike process ids, locks cannot
be confused, even across containers that share a temporary folder.
"""

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from .sandbox import SPARE_UIDS

try:
    import fcntl
except ImportError:  # Windows: no locks, and nothing is removed
    fcntl = None  # type: ignore[assignment]  # a module on other systems

PREFIX = "hpcdl-grade-"
AGE = 60.0  # seconds before a folder may be removed: its owner may be about to take the lock


class Folder(tempfile.TemporaryDirectory):
    """A temporary folder of this process. A context manager that yields its path."""

    def __init__(self):
        super().__init__(prefix=PREFIX)
        self.lock = _held(self.name) if fcntl else None

    def cleanup(self) -> None:
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None
        super().cleanup()


def clear() -> None:
    """Remove the folders of graders that ended without doing it."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if fcntl else ():
        with contextlib.suppress(OSError):  # it is held, or another grader is removing it
            if _is_old_and_ours(path.lstat()):
                lock = _held(path)
                try:
                    shutil.rmtree(path)
                finally:
                    os.close(lock)


def _is_old_and_ours(status: os.stat_result) -> bool:
    return time.time() - status.st_mtime > AGE and status.st_uid in (os.geteuid(), *SPARE_UIDS)


def _held(path: str | Path) -> int:
    """Return a descriptor that holds the folder; raise OSError if another process holds it, or it is not a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
