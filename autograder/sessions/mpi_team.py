"""The student's code on ranks of a real MPI: workers in the slots of one mpiexec."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from autograder.walls import scratch
from autograder.walls.zygote import Slot, Zygote
from hpcdl.cluster.launcher import LauncherError

from .copies import copied
from .errors import StudentError
from .grader import Grader
from .mpi_slots import PATIENCE, slots
from .ranks import SIZES, RecordedRun, of_rank
from .remote import RemoteSession
from .session import Session

SECONDS = 10.0  # for all runs of an exercise; a rank that waits forever uses them all


class MPIRank(RemoteSession):
    """A worker in one of MPI's slots. Its team shares a zygote, and a separate thread waits for each worker."""

    zygotes = threading.Lock()
    slot: Slot

    def __init__(self, zygote: Zygote, folder: str, slot: Slot):
        self.slot = slot
        super().__init__(zygote, [], folder)

    def start(self) -> None:
        self.spawn()  # without waiting: it is ready when all ranks are

    def give_up(self) -> None:
        """Close the connection for a thread that waits for this rank."""
        with contextlib.suppress(OSError):
            self.grader.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self.zygotes:
            super().close()

    def end(self) -> int:
        with self.zygotes:
            return super().end()


@contextlib.contextmanager
def team(zygote: Zygote, cells: list) -> Iterator["Team"]:
    """Provide ranks that run `cells`, until the block ends; raise LauncherError if there are none."""
    with contextlib.ExitStack() as stack:
        found, folder = stack.enter_context(slots(max(SIZES))), stack.enter_context(scratch.Folder())
        ranks = [stack.enter_context(MPIRank(zygote, folder, slot)) for slot in found]
        for rank in ranks:
            rank.allot(PATIENCE)
        if not all(rank.answers() for rank in ranks):
            raise LauncherError("MPI did not start in the sandbox")
        yield Team(ranks, cells)


class Team(Session):
    """Ranks of one MPI, as a check sees them: the first error ends all of them."""

    def __init__(self, ranks: list[MPIRank], cells: list):
        super().__init__()
        self.ranks, self.cells, self.grader = ranks, cells, Grader()
        self.failures: list[StudentError] = []

    def make_ready(self, seconds: float) -> None:
        self.allot(seconds)
        if self.cells:
            self.everywhere(lambda rank: rank.run_cells(self.cells), len(self.ranks))
            self.cells = []
        for rank in self.ranks:
            rank.allot(seconds)

    def spent(self) -> float:
        """Return the seconds of the slowest rank."""
        return max(rank.spent() for rank in self.ranks)

    def results(self, run: RecordedRun) -> list[tuple]:
        """Return, by rank, its result and its arguments after the call."""
        self.grader.sent = run.shown
        return self.everywhere(partial(self._call, run), run.p)

    def _call(self, run: RecordedRun, rank: MPIRank) -> tuple:
        arguments = copied(run.given[rank.slot.rank], {})
        parts = (arguments, run.kwargs, rank.slot.rank, run.p, None, run.harness)
        return rank.timed(["rank", run.name], parts, None, objects=False), arguments

    def everywhere(self, call: Callable, p: int) -> list:
        """Return `call(rank)` for the first `p` ranks, run at the same time."""
        with ThreadPoolExecutor(p) as pool:
            found = list(pool.map(partial(self._attempt, call, p), self.ranks[:p]))
        if self.failures:
            raise self.failures[0]
        return found

    def _attempt(self, call, p: int, rank: MPIRank):
        try:
            return call(rank)
        except StudentError as error:
            self.failures.append(of_rank(error, rank.slot.rank, p))
            for other in self.ranks:  # otherwise they would wait for this one until their time is up
                other.give_up()
            return None
