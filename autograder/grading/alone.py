"""Repeat a check that ran out of time or memory, or whose process was killed, while no other lane is working.

Limits count only a student's own work, but a busy machine also has slower caches, and each lane has only its part of
the memory. So before such a verdict counts, the exercise is checked once more alone; the better result counts, with a
note. The only lane does not repeat what had a processor to itself: that was alone.
"""

import contextlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from autograder.authoring import Lab
from autograder.results import ExerciseResult
from autograder.sessions.ended import KILLED
from autograder.sessions.remote import RemoteSession
from autograder.walls.memory import Allowance

from .run import Limit, full, run_exercise
from .seeds import Seeds

try:
    import fcntl
except ImportError:  # Windows: lanes do not wait for each other
    fcntl = None  # type: ignore[assignment]  # a module on other systems

PATIENCE = 60.0  # seconds to wait for other lanes, then continue next to them
PAUSE = 0.02
# In what an answer says or ends with if it lacks memory, or room in its folder, which is a part of it.
WANT = re.compile(r"memory|alloc|new thread|space left|abort|segmentation|killed", re.IGNORECASE)
SAID = "This ran out of time or memory beside others, and was checked again alone: that counts."


def ask_again(
    lab: Lab, found: list[ExerciseResult], session: RemoteSession, seed_of: Seeds, later: Limit = full
) -> None:
    """Replace results in `found` by better ones; `later` are the limits after one that times out again."""
    has_part, crowded = session.zygote.memory != Allowance(), session.zygote.memory.lanes > 1
    doubtful = [i for i, each in enumerate(found) if is_doubtful(each, crowded) or (has_part and wants_memory(each))]
    if not doubtful:
        return
    limit: Limit = full
    with FLOOR.alone(), session.zygote.alone():
        if has_part:
            session.close()  # a process keeps its limits
        for i in doubtful:
            again = run_exercise(lab.exercises[found[i].name], session, seed_of, limit)
            limit = later if again.ran_out else limit
            if again.points > found[i].points:
                again.forbidden, again.note = found[i].forbidden or again.forbidden, SAID
                found[i] = again


def is_doubtful(result: ExerciseResult, crowded: bool = True) -> bool:
    """Return whether the machine, not the answer, may have caused the failure; `crowded` with other lanes."""
    late = [check for check in result.checks if check.kind == "timeout" and not check.asleep]
    return any(crowded or not check.undisturbed for check in late) or any(
        check.kind == "ended" and KILLED in check.message for check in result.checks
    )


def wants_memory(result: ExerciseResult) -> bool:
    """Return whether the check may have failed for lack of memory."""
    failed = [check for check in result.checks if check.kind in ("exception", "ended", "check")]
    return any(WANT.search(check.message) for check in failed)


class Floor:
    """A lock that lanes share while they grade, and that one lane may hold exclusively; it ends with the process.

    All lanes of an account on this machine use it, including other shards' and other graders'.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.shares = -1  # a descriptor while this lane works

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the floor shared in the block; wait while another lane holds it, or waits for it, exclusively."""
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
        """Hold the floor exclusively in the block, or at least after waiting as long as allowed."""
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
        """Return a descriptor to lock; -1 if there cannot be one."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            status = self.folder.lstat()
            if fcntl and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        return -1

    def _lock(self, descriptor: int, exclusive: bool) -> None:
        """Take the lock, or continue without it after a while."""
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
