"""What a check sees as `student`: attributes that call the student's code and return plain values.

A `Session` is one student's code, ready to be called under a time limit. `local.LocalSession` calls it in this process,
as `check` does in a notebook; `remote.RemoteSession` calls it in a sandboxed process, as grading does. Both send the
same frames, so a check sees the same values either way.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from autograder.boundary.limits import Stopwatch, account
from autograder.checks import CheckFailure
from hpcdl.comm import Simulation

from .copies import copied
from .errors import StudentError
from .grader import Grader, shown_call
from .ranks import RankCall, Ranks, copies_for

Forbidden = tuple[tuple[str, ...], tuple[str, ...] | None]  # patterns, and what of hpcdl is open (None: all)
NOTHING: Forbidden = ((), None)
MOST_DENIED = 100  # forbidden calls of a check that are kept


class Student:
    """`student.f(...)` calls the student's `f`. A capitalised name is a class, whose objects stay as handles."""

    def __init__(self, session: "Session"):
        self.__dict__["_session"] = session

    def ranks(
        self, name: str, p: int, args_for: Callable[[int], tuple], kwargs: dict | None = None, **options: Any
    ) -> Ranks:
        """Call `name` on each of `p` ranks of a simulated machine; `options` are those of `Session.run_ranks`."""
        return self._session.run_ranks(name, p, args_for, kwargs, **options)

    @contextlib.contextmanager
    def operations(self, *operators: str) -> Iterator[dict[str, int]]:
        """Count the calls of torch's operators that the student's code makes in the block, by name.

            with student.operations("aten::mm", "aten::addmm", "aten::bmm") as counts:
                y = student.conv_im2col(x, w)
            checks.equal(sum(counts.values()), 1, name="the number of matrix products")

        The names are those of `forbidden`. The student's process counts: right for honest code, no proof against other.
        """
        counts: dict[str, int] = {}
        self._session.timed(["count", ""], (operators,), None, objects=False)
        yield counts
        counts.update(self._session.timed(["count", ""], ((),), None, objects=False))

    def is_right_when_garbled(self, rng: torch.Generator, ask: Callable[[], Any]) -> bool:
        """Whether `ask`, which raises if an answer is wrong, passes while ranks receive other numbers than were sent.

        An answer that does learns what the other ranks have without their messages: see `garbled`.
        """
        self._session.garble = rng
        try:
            ask()
        except (CheckFailure, StudentError):
            return False
        finally:
            self._session.garble = None
        return True

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)

        def function(*args, **kwargs):
            return self._session.call_by_name(name, args, kwargs)

        function.__name__ = name
        return function


class Session:
    """One student's code and the time it may still take."""

    grader: Grader
    undefined = "The notebook does not define it."  # what to say about a name that is not there

    def __init__(self):
        self.student = Student(self)
        self.seconds = self.left = 0.0
        self.touched = self.protected = False
        self.garble: torch.Generator | None = None  # see `Student.garbled`
        self.careless: list[str] = []  # of the last run on ranks: see `inside.under_way`
        self.forbidden: Forbidden = NOTHING  # calls that the exercise at hand forbids
        self.denied: list[StudentError] = []  # those that were made all the same in this check

    def forbid(self, patterns: tuple[str, ...] = (), opened: tuple[str, ...] | None = None) -> None:
        """From the next check on, the student's code may not make the calls that `patterns` name.

        Nor those of hpcdl but for what is `opened`; with None all of it is.
        """
        self.forbidden = (patterns, opened)

    def deny(self, name: Any, location: Any) -> None:
        """The other side reports a forbidden call. It was denied, and stays on the record whatever the code does."""
        problem = {**(location if type(location) is dict else {}), "kind": "forbidden", "text": str(name)}
        if len(self.denied) < MOST_DENIED:
            self.denied.append(StudentError.of(problem))

    def start_check(self, seconds: float, *, protected: bool = False) -> None:
        """A check begins, with the student's code ready for it; its calls may take `seconds` together.

        `protected`: functions get copies of their arguments. `touched` says whether they changed those they got.
        """
        self.make_ready(seconds)
        self.allot(seconds, protected=protected)

    def make_ready(self, seconds: float) -> None:
        """See to it that the student's code can be called, within `seconds`, and knows what is forbidden."""
        raise NotImplementedError

    def allot(self, seconds: float, *, protected: bool = False) -> None:
        """Forget the last check; the calls from here on may take `seconds` together.

        Only the student's time counts, not the oracle's.
        """
        self.seconds = self.left = seconds
        self.grader.recall()
        self.grader.session = self  # what a check does to a student's object takes the student's time too
        self.grader.failure = self.grader.sent = None
        self.touched, self.protected = False, protected
        self.denied = []

    def call_by_name(self, name: str, args: tuple, kwargs: dict):
        if self.protected:
            args, kwargs = copied((args, kwargs), {})
        self.grader.changed = False
        result = self.timed(["name", name], args, kwargs, objects=name[:1].isupper())
        self.touched |= self.grader.changed
        return result

    def run_ranks(
        self,
        name: str,
        p: int,
        args_for: Callable[[int], tuple],
        kwargs: dict | None = None,
        *,
        harness: str | None = None,
        **machine: float,
    ) -> Ranks:
        """Call `name(*args_for(rank), comm, **kwargs)` on each of `p` ranks; `machine` is alpha, beta, gamma, seed.

        With a `harness` (see `inside.harnesses`) that gets the arguments, and calls the function with what it makes of
        them.
        """
        given = [tuple(args_for(rank)) for rank in range(p)]
        arguments, copies = copies_for(given)
        if harness:  # it returns all that counts, and the check's own values stay as they are
            kwargs = copied(kwargs or {}, {})
        call = RankCall(name, p, arguments, kwargs or {}, harness, machine, self.garble)
        self.grader.sent = call.shown(self.grader)
        if self.left <= 0:
            raise self.timeout()
        run = self.simulate(call)
        return Ranks(run.results, run.seconds, run.trace, run.bytes_sent, arguments, self.careless, given, copies)

    def simulate(self, call: RankCall) -> Simulation:
        """Do the call on the ranks of a simulated machine."""
        raise NotImplementedError

    def timed(self, target: list, args: tuple, kwargs: dict | None, objects: bool):
        """Call within the time that is left. The worker stops the call itself, and so can say in which line it was."""
        if self.left <= 0:
            raise self.timeout()
        with account().counted():
            return self._timed(self.stopwatch(), target, args, kwargs, objects)

    def _timed(self, watch: Stopwatch, target: list, args: tuple, kwargs: dict | None, objects: bool):
        try:
            return self.grader.call(target, args, kwargs, objects=objects, seconds=self.left)
        except StudentError as error:
            if error.kind == "timeout":
                error.text = self.timeout().text
                self.left = min(self.left, watch.seconds())  # nothing is left, whatever the account of who waited says
            raise
        finally:
            self.left -= watch.seconds()

    def spent(self) -> float:
        """Seconds that the student's code has taken in this check."""
        return max(0.0, self.seconds - self.left)  # a processor's account of who waited comes a little late

    def stopwatch(self) -> Stopwatch:
        """Counts the seconds of the process that runs the student's code."""
        return Stopwatch()

    def timeout(self, seconds: float | None = None) -> StudentError:
        """What to say after the check's seconds, or those of one call."""
        limit = self.seconds if seconds is None else seconds
        return StudentError("timeout", f"Your code did not finish within {limit:g} s, so it was stopped.")

    def last_call(self) -> str:
        """The last call by name, as the student would write it; from the bytes that were sent, before any change."""
        return shown_call(self.grader.sent, self.grader.proxies) if self.grader.sent else ""
