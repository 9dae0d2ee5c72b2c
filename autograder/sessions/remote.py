"""A student's code in a separate sandboxed process, for grading. One crash or time-out costs one check."""

import os
from typing import Any

from autograder.boundary.limits import Stopwatch, Together, waited
from autograder.boundary.protocol import Closed, ProtocolError
from autograder.inside.harnesses import HARNESSES
from autograder.walls import sandbox
from autograder.walls.zygote import Slot, Zygote
from hpcdl.comm import CommError, Simulation, simulate

from .copies import copied
from .desk import Desk, with_book
from .ended import CHANNEL, is_tapped, processor_seconds, why_ended
from .errors import StudentError
from .garbled import garbled
from .ranks import EACH, SIZES, RankCall, RecordedRun, explained
from .session import NOTHING, Forbidden, Session
from .socket_grader import SocketGrader

CELL_SECONDS = 10.0  # for one cell of definitions
LOAD_SECONDS = 20.0  # for all cells, in all workers of a submission, beyond `QUICK` seconds each time
QUICK = 1.0
PATIENCE = 0.3  # seconds for a worker to stop by itself and report its line, before it is killed
MOST_PROBLEMS = 100  # reported failed cells
RESTARTS = 3  # cells that may crash or loop before the whole notebook is given up

ASLEEP = 0.02  # of its limit: code that used less of a processor has waited, even among fifty others
OWN = 0.9  # of its limit: code that ran for as much of it, and waited for a processor for less than the rest
RECEIVING = 0.05  # seconds of a processor that each rank's worker may use to receive a call, on a slow machine


class RemoteSession(Session):
    """Runs `cells` ((label, source) pairs) in a worker and calls it; the next check replaces one that ended."""

    grader: SocketGrader
    together: Together | None = None  # the common time of all ranks, while this is one of them
    slot: Slot | None = None  # among the ranks of a real MPI

    def __init__(
        self,
        zygote: Zygote,
        cells: list,
        folder: str,
        limits: sandbox.Limits | None = None,  # None: what the zygote allows such a process
        opened: tuple[str, ...] | None = None,
        patience: list[float] | None = None,
        rank: bool = False,
    ):
        super().__init__()
        self.opened = opened  # names in hpcdl that cells may call; None: all
        self.patience = patience or [LOAD_SECONDS]  # shared by a team
        self.early: dict[str, StudentError] = {}  # their forbidden calls, by name
        self.zygote, self.cells, self.folder, self.limits, self.rank = zygote, cells, folder, limits, rank
        self.problems: dict[str, StudentError] = {}  # label of a cell -> its error
        self.broken: set[str] = set()  # labels of cells that ended or stopped the process
        self.pid = self.clock = self.stat = 0
        self.ranks_failed = False  # an error of a run on ranks ended the worker
        self.worked, self.mates = 0.0, [self]  # processor seconds before this check; the ranks that share its time
        self.queued = 0.0  # seconds that the worker has waited for a processor before this check
        self.others: list[RemoteSession] = []  # ranks 1, 2, ... of exercises over several ranks
        self.runs: dict[str, list[RecordedRun]] = {}  # function -> `RecordedRun`s of it that can be repeated
        self.start()

    def start(self) -> None:
        """Start a worker that runs every cell, except the ones that end or block it."""
        self.spawn()
        self.load(self.cells)

    def spawn(self) -> None:
        limits = self.limits or self.zygote.limits(self.rank or self.slot is not None)
        worker = self.zygote.spawn(limits, self.folder, self.slot)
        self.pid, self.clock, self.stat = worker.pid, worker.clock, worker.stat
        self.worked = 0.0
        self.worker_forbids: Forbidden = NOTHING  # what the worker currently forbids
        self.grader = SocketGrader(worker.sock, worker.key)

    def load(self, cells: list) -> None:
        """Run `cells` in the current worker, and in its replacements."""
        self.cells = cells
        if not self.broken and self.attempt(together=True):
            return
        while len(self.broken) <= RESTARTS:  # one by one, to find the culprit
            if not self.pid:
                self.spawn()
            if self.attempt(together=False):
                return
        self.close()

    def attempt(self, together: bool) -> bool:
        """Run the cells that are not known as broken; return False, with no worker left, if one ended or blocked it."""
        sound = [cell for cell in self.cells if cell[0] not in self.broken]
        for cells in ([sound] if sound else []) if together else [[cell] for cell in sound]:
            try:
                self.run_cells(cells)
            except StudentError as error:
                self.close()
                if not together:
                    self.broken.add(cells[0][0])
                    self.problems[cells[0][0]] = error
                return False
        return True

    def run_cells(self, cells: list) -> None:
        self.allot(min(CELL_SECONDS, self.patience[0] + QUICK))
        self.worker_forbids = ((), self.opened)
        try:
            problems = self.timed(["execute", ""], (cells, self.opened), None, objects=False)
        finally:
            self.patience[0] = max(0.0, self.patience[0] - max(0.0, self.spent() - QUICK))
        for label, problem in problems[:MOST_PROBLEMS]:
            self.problems[str(label)[:100]] = StudentError.of(problem)
        self.early |= {error.text: error for error in self.denied}

    def make_ready(self, seconds: float) -> None:
        """Replace the worker if it has ended, or is out of step."""
        if not self.pid and len(self.broken) <= RESTARTS:
            self.start()
        self.allot(seconds)
        if self.pid and not self.in_step():
            self.close()
            self.start()
            self.answers()

    def in_step(self) -> bool:
        """Whether the worker is running, has written nothing unrequested, and knows what is forbidden."""
        if self.grader.channel.waiting():
            return False
        return self.forbidden == self.worker_forbids == NOTHING or self.answers()

    def answers(self) -> bool:
        """Whether the worker answers. The request also tells it what the exercise forbids."""
        try:
            self.timed(["forbid", ""], self.forbidden, None, objects=False)
        except StudentError:
            return False
        self.worker_forbids = self.forbidden
        return True

    def timed(self, target: list, args: tuple, kwargs: dict | None, objects: bool):
        self.start_after_ranks()
        if not self.pid:
            raise StudentError(
                "ended", "Your notebook's cells end or stop the Python process, so nothing can be called."
            )
        before = self.grader.left
        try:
            return super().timed(target, args, kwargs, objects)
        except StudentError as error:
            if error.kind == "timeout":
                self.stop(error)
            raise
        except TimeoutError:
            raise self.stop(self.timeout()) from None
        except (Closed, ProtocolError) as error:
            status = self.end()
            if is_tapped(error, status):
                self.deny(CHANNEL, {})
            raise StudentError("ended", why_ended(error, status)) from None
        finally:
            self.grader.left = before

    def _timed(self, watch: Stopwatch, *call: Any):
        limit = self.left + PATIENCE
        self.grader.left = lambda: watch.left(limit)
        if not (together := self.together):
            return super()._timed(watch, *call)
        self.grader.left = lambda: together.left(limit)
        with together.with_call(watch):
            return super()._timed(watch, *call)

    def simulate(self, call: RankCall) -> Simulation:
        """Run each rank as a process with the student's cells; their machine is in this process."""
        given = copied(call.arguments, {}) if call.p in SIZES and not call.garble else []
        run = self.in_processes(call)
        if given:
            self.record(call, given, run.results)
        return run

    def start_after_ranks(self) -> None:
        """Start a worker in the middle of a check, after an error on the ranks ended the last one."""
        if self.pid or not self.ranks_failed or len(self.broken) > RESTARTS:
            return
        self.ranks_failed = False
        seconds, left, sent = self.seconds, self.left, self.grader.sent
        touched, denied = self.touched, self.denied
        self.start()
        self.allot(seconds, protected=self.protected)
        self.left, self.grader.sent, self.touched, self.denied = left, sent, touched, denied
        self.answers()

    def in_processes(self, call: RankCall) -> Simulation:
        self.start_after_ranks()
        team = self.team(call.p)
        desks: list[Desk | None] = [None] * call.p
        for member in team[1:]:
            member.forbid(*self.forbidden)
            member.start_check(self.left)
            member.seconds, member.denied = self.seconds, self.denied

        harness = HARNESSES.get(call.harness or "")

        def rank(comm):
            garbled(comm, call.garble)
            desk = desks[comm.rank] = Desk(comm, harness.takes(call.arguments[comm.rank]) if harness else None)
            parts = (call.arguments[comm.rank], call.kwargs, comm.rank, call.p, desk.operate, call.harness)
            result = team[comm.rank].timed(["rank", call.name], parts, None, objects=False)
            return with_book(result, harness, desk)

        left, together = self.left, Together()
        for member in team:
            member.together, member.mates = together, team
        try:
            run = simulate(rank, call.p, **call.machine)
            self.careless = [sentence for desk in desks if desk for sentence in desk.careless()]
            return run
        except CommError as error:
            self.close()  # every rank is in the middle of something
            self.ranks_failed = True
            raise explained(call.p, error, desks) from None
        finally:
            self.left = left - together.seconds()
            for member in team:
                member.together, member.mates = None, [member]

    def record(self, call: RankCall, given: list[tuple], results: list) -> None:
        """Keep a run for real MPI ranks to repeat: a few per function and number of ranks."""
        kept = self.runs.setdefault(call.name, [])
        if sum(call.p == other.p for other in kept) < EACH:
            results, left = copied((results, call.arguments), {})  # the check may change its own copies
            kept.append(
                RecordedRun(call.name, call.p, call.harness, call.kwargs, given, results, left, self.grader.sent)
            )

    def team(self, p: int) -> list["RemoteSession"]:
        """Return this worker and p - 1 others with the same cells: one process per rank."""
        while len(self.others) < p - 1:
            same = self.cells, self.folder, self.limits, self.opened, self.patience
            self.others.append(RemoteSession(self.zygote, *same, rank=True))
        return [self, *self.others[: p - 1]]

    def allot(self, seconds: float, *, protected: bool = False) -> None:
        super().allot(seconds, protected=protected)
        self.worked, self.queued = self.work(), waited(self.clock)

    def work(self) -> float:
        """Return the processor seconds of all threads of the worker, to a hundredth; 0 where the system has none."""
        return processor_seconds(self.stat)

    def stop(self, late: StudentError) -> StudentError:
        """End the worker in the middle of something: the next check gets a fresh one. Say of the time-out whether the
        code has waited, and whether it had a processor to itself."""
        late.asleep, late.undisturbed = self.is_asleep(), self.is_undisturbed()
        self.close()
        return late

    def is_undisturbed(self) -> bool:
        """Whether the worker, alone in this check, had a processor for nearly all of its limit."""
        ran, queued = self.work() - self.worked, waited(self.clock) - self.queued
        return self.mates == [self] and ran > OWN * self.seconds and queued < (1 - OWN) * self.seconds

    def is_asleep(self) -> bool:
        """Whether the code of this check, on all its ranks, has waited instead of working."""
        clocked = self.pid and os.pread(self.stat, 1, 0)
        work = sum(max(0.0, each.work() - each.worked - RECEIVING) for each in self.mates)
        return bool(clocked) and work < ASLEEP * self.seconds

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self.clock)

    def close(self) -> None:
        """End the worker, and the others of its team."""
        if pid := self.leave():
            self.zygote.dismiss(pid)

    def end(self) -> int:
        """End the worker and its team; return the worker's wait status."""
        pid = self.leave()
        return self.zygote.reap(pid) if pid else 0

    def leave(self) -> int:
        """Release the worker and end its team; return its process id, or 0 if there was none."""
        while self.others:
            self.others.pop().close()
        if self.pid:
            self.grader.sock.close()
            os.close(self.clock)
            os.close(self.stat)
        pid, self.pid = self.pid, 0
        return pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
