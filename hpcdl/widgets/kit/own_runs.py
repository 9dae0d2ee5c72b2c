"""Run a student's program on the simulated machine, and note on which of its lines the ranks send and wait."""

import contextlib
import io
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from hpcdl.comm import Communicator, DeadlockError, Simulation, TracingComm, simulate
from hpcdl.comm.location import SourceLine, caller, lines_of
from hpcdl.interrupt import alarm
from hpcdl.widgets.kit.waiting import TooLong

ALPHA, BETA = 1e-5, 1e-9  # seconds for a message and for a byte
LATE = 1e-3  # seconds by which `LATECOMER` starts late: as long as a hundred messages
LATECOMER = 1
PATIENCE = 5.0  # seconds; right programs take a fraction of one
SHOWN = 76  # characters of a line of code

Program = Callable[[Communicator], object]


@dataclass
class Lines:
    """The lines of a program in one run: bytes sent by (rank, line), virtual seconds in calls of `comm` by line.

    `waiting` has the line in which a rank is now; `returned` has the ranks that are done.
    """

    sent: Counter[tuple[int, SourceLine]] = field(default_factory=Counter)
    seconds: dict[SourceLine, float] = field(default_factory=dict)
    waiting: dict[int, SourceLine] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)


class NotedComm(TracingComm):
    """Passes every operation on to `comm`, and notes in `lines` which line of the student's code asked for it."""

    def __init__(self, comm: Communicator, lines: Lines):
        super().__init__(comm)
        self.lines = lines

    def wrap(self, comm: Communicator) -> "NotedComm":
        return NotedComm(comm, self.lines)

    def _isend(self, op, x, dest, tag):
        self._note_sent(x)
        return super()._isend(op, x, dest, tag)

    def _wait(self, op, *requests):
        self._note_seconds(super()._wait, op, *requests)

    def _wait_any(self, op, requests):
        return self._note_seconds(super()._wait_any, op, requests)

    def _sendrecv(self, x, dest, out, source, tag):
        self._note_sent(x)
        self._note_seconds(super()._sendrecv, x, dest, out, source, tag)

    def _sendrecv_add(self, x, *rest):
        self._note_sent(x)
        self._note_seconds(super()._sendrecv_add, x, *rest)

    def _sendrecv_add_back(self, x, dest, out, *rest):
        self._note_sent(x)
        self._note_sent(out)
        self._note_seconds(super()._sendrecv_add_back, x, dest, out, *rest)

    def _broadcast(self, x, root):
        self._note_seconds(super()._broadcast, x, root)

    def _all_reduce(self, x):
        self._note_seconds(super()._all_reduce, x)

    def _barrier(self):
        self._note_seconds(super()._barrier)

    def _note_sent(self, x: torch.Tensor) -> None:
        if line := _own_line():
            self.lines.sent[self.rank, line] += x.nbytes

    def _note_seconds(self, run: Callable, *args):
        """Call `run(*args)`, and add the virtual seconds that it takes to the student's line."""
        line, begin = _own_line(), self.clock()
        if line is None:
            return run(*args)
        self.lines.waiting[self.rank] = line
        result = run(*args)
        del self.lines.waiting[self.rank]
        self.lines.seconds[line] = self.lines.seconds.get(line, 0.0) + self.clock() - begin
        return result


def _own_line() -> SourceLine | None:
    """Return the innermost line of the student's that is running; its function does not matter."""
    line = caller(lines_of(sys._getframe(1)))
    return line and line._replace(function="")


def run(program: Program, p: int, *, late: bool = False) -> tuple[Lines, Simulation]:
    """Run `program(comm)` on `p` ranks, with `late` rank `LATECOMER` later; return its lines and the simulation.

    Raise what `simulate` raises, and TooLong after `PATIENCE`. Prints are dropped, and torch's random numbers continue
    afterwards as if nothing had run.
    """
    lines = Lines()
    with _quietly():
        return lines, simulate(_rank(program, lines, late), p, alpha=ALPHA, beta=BETA)


def failures(program: Program, p: int) -> dict[int, str]:
    """Return the numbers of ranks below `p` with which `program` fails, each with the first line of its error.

    If it does not end within `PATIENCE` with one of them, do not wait for the others, and return none.
    """
    found = {}
    for q in range(1, p):
        try:
            run(program, q)
        except TooLong:
            return {}
        except Exception as error:  # whatever a student's program does
            found[q] = str(error).partition("\n")[0]
    return found


def stuck_without(program: Program, p: int, absent: int) -> dict[int, SourceLine | None]:
    """Return the ranks that wait forever if rank `absent` returns at once, each with its line if that is known.

    Raise what `simulate` raises, except a DeadlockError, and TooLong after `PATIENCE`.
    """
    lines = Lines()
    with _quietly(), contextlib.suppress(DeadlockError):
        simulate(_rank(program, lines, absent=absent), p, alpha=ALPHA, beta=BETA)
    return {rank: lines.waiting.get(rank) for rank in range(p) if rank not in lines.returned}


def _rank(program: Program, lines: Lines, late: bool = False, absent: int = -1) -> Program:
    def rank(comm):
        if late and comm.rank == LATECOMER:
            comm.compute(LATE)
        if comm.rank != absent:
            program(NotedComm(comm, lines))
        lines.returned.add(comm.rank)

    return rank


@contextlib.contextmanager
def _quietly():
    said = TooLong(f"it did not end within {PATIENCE:g} s")
    with torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(io.StringIO()), alarm(PATIENCE, said):
        yield


def shown(line: SourceLine) -> str:
    """Return a line as a student finds it: `line 7: comm.send(x, right)`."""
    source = line.source if len(line.source) <= SHOWN else f"{line.source[: SHOWN - 2].rstrip()} …"
    return f"line {line.line}: {source}" if source else f"line {line.line}"
