"""A verdict by time-out, or of a process that was killed, is asked again while no other lane is at work.

Limits count a student's own work alone, but a crowded machine also has less memory and slower caches. So before such a
verdict counts, the exercise is checked once more by itself; the better result counts, and says so.
"""

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from autograder.authoring import Lab
from autograder.results import ExerciseResult
from autograder.sessions.remote import KILLED, RemoteSession

from .run import Limit, full, run_exercise
from .seeds import Seeds

try:
    import fcntl
except ImportError:  # Windows: lanes do not wait for one another
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

PATIENCE = 60.0  # seconds that one waits for the others: then it goes on beside them
PAUSE = 0.02
SAID = "This ran out of time or memory beside others, and was checked again alone: that counts."


def ask_again(
    lab: Lab, found: list[ExerciseResult], session: RemoteSession, seed_of: Seeds, later: Limit = full
) -> None:
    """Replace results in `found` by better ones; `later` are the limits after one that runs out of time again."""
    doubtful = [i for i, result in enumerate(found) if is_doubtful(result)]
    if not doubtful:
        return
    limit: Limit = full
    with FLOOR.alone():
        for i in doubtful:
            again = run_exercise(lab.exercises[found[i].name], session, seed_of, limit)
            limit = later if again.ran_out else limit
            if again.points > found[i].points:
                again.forbidden, again.note = found[i].forbidden or again.forbidden, SAID
                found[i] = again


def is_doubtful(result: ExerciseResult) -> bool:
    """Whether the machine, and not the answer, may be why it failed."""
    return result.ran_out or any(check.kind == "ended" and KILLED in check.message for check in result.checks)


class Floor:
    """What lanes share while they grade, and one has alone: locks that end with the process that holds them.

    All lanes of an account on this machine meet there, those of other shards and other graders too.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.shares = -1  # a descriptor, while this lane is at work

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """The lane is at work in the block: it begins when nobody has, or waits for, the floor alone."""
        with self._held("gate", exclusive=True):
            self.shares = self._open("floor")
            self._lock(self.shares, exclusive=False)
        try:
            yield
        finally:
            self._close(self.shares)
            self.shares = -1

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else is at work in the block, or at least nobody whom one could wait for."""
        if self.shares >= 0:
            self._unlock(self.shares)
        with self._held("gate", exclusive=True), self._held("floor", exclusive=True):
            yield
        if self.shares >= 0:
            self._lock(self.shares, exclusive=False)

    @contextlib.contextmanager
    def _held(self, name: str, exclusive: bool) -> Iterator[None]:
        descriptor = self._open(name)
        try:
            self._lock(descriptor, exclusive)
            yield
        finally:
            self._close(descriptor)

    def _open(self, name: str) -> int:
        """A descriptor to lock; -1 where there can be none."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            status = self.folder.lstat()
            if fcntl and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        return -1

    def _lock(self, descriptor: int, exclusive: bool) -> None:
        """Take the lock, or go on without it after a while."""
        kind = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB if fcntl else 0
        end = time.monotonic() + PATIENCE
        while descriptor >= 0 and time.monotonic() < end:
            try:
                return fcntl.flock(descriptor, kind)
            except BlockingIOError:
                time.sleep(PAUSE)
            except OSError:  # a file system without locks
                return None
        return None

    def _unlock(self, descriptor: int) -> None:
        if fcntl:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _close(self, descriptor: int) -> None:
        if descriptor >= 0:
            os.close(descriptor)


FLOOR = Floor(Path(tempfile.gettempdir()) / f"hpcdl-lanes-{getattr(os, 'geteuid', int)()}")
