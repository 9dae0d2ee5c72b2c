"""The `student` of a check: attributes that call the student's code and return plain values.

A `Session` is one student's code, ready to be called under a time limit. `local.LocalSession` calls it in this process,
for `check` in a notebook; `remote.RemoteSession` calls it in a sandboxed process, for grading. Both send the
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
from .garbled import Garbling
from .grader import Grader, shown_call
from .handle import Handle, made_by
from .ranks import RankCall, Ranks, closed_collectives, copies_for, without_time_of_its_own

Forbidden = tuple[tuple[str, ...], tuple[str, ...] | None]  # patterns, and the open names in hpcdl (None: all)
NOTHING: Forbidden = ((), None)
MOST_DENIED = 100  # recorded forbidden calls per check


class Student:
    """`student.f(...)` calls the student's `f`. A capitalised name is a class, whose objects stay as handles."""

    def __init__(self, session: "Session"):
        self.__dict__["_session"] = session

    def ranks(
        self, name: str, p: int, args_for: Callable[[int], tuple], kwargs: dict | None = None, **options: Any
    ) -> Ranks:
        """Call `name` on each of `p` ranks of a simulated machine; `options` are those of `Session.run_ranks`."""
        return self._session.run_ranks(name, p, args_for, kwargs, **options)

    def handle(self, name: str, *args: Any) -> Any:
        """Call `name`, a function that returns an object of the student's class; the object stays as a handle."""
        return self._session.timed(["name", name], args, None, objects=True)

    @contextlib.contextmanager
    def operations(self, *operators: str) -> Iterator[dict[str, int]]:
        """Count the calls of torch's operators that the student's code makes in the block, by name.

            with student.operations("aten::mm", "aten::addmm", "aten::bmm") as counts:
                y = student.conv_im2col(x, w)
            checks.equal(sum(counts.values()), 1, name="the number of matrix products")

        Names are as in `forbidden`. The student's process counts, so this is right for honest code but no proof against
        cheating.
        """
        counts: dict[str, int] = {}
        self._session.timed(["count", ""], (operators,), None, objects=False)
        yield counts
        counts.update(self._session.timed(["count", ""], ((),), None, objects=False))

    def is_right_when_garbled(self, rng: torch.Generator, ask: Callable[[], Any], tag: int | None = None) -> bool:
        """Whether `ask`, which raises if an answer is wrong, passes while ranks receive other numbers than were sent.

        Such an answer gets the other ranks' data without messages: see `garbled`. With a `tag`, only messages with
        this tag change.
        """
        self._session.garble = Garbling(rng, tag)
        try:
            ask()
        except (CheckFailure, StudentError):
            return False
        finally:
            self._session.garble = None
        return True

    def careless(self) -> list[str]:
        """Return what the last run on ranks did with its messages' tensors before a wait: see `inside.under_way`."""
        return self._session.careless

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
    undefined = "The notebook does not define it."  # the message for a missing name

    def __init__(self):
        self.student = Student(self)
        self.seconds = self.left = 0.0
        self.touched = self.protected = False
        self.garble: Garbling | None = None  # see `Student.is_right_when_garbled`
        self.careless: list[str] = []  # of the last run on ranks: see `inside.under_way`
        self.forbidden: Forbidden = NOTHING  # calls that the exercise at hand forbids
        self.denied: list[StudentError] = []  # forbidden calls that were made in this check
        self.first_call = ""  # the last call of a check that has run again since: see `aside`

    def forbid(self, patterns: tuple[str, ...] = (), opened: tuple[str, ...] | None = None) -> None:
        """Forbid the calls of `patterns` from the next check on.

        hpcdl is also forbidden, except the `opened` names; with None all of it is open.
        """
        self.forbidden = (patterns, opened)

    def deny(self, name: Any, location: Any) -> None:
        """Record a forbidden call that the other side reports. It was denied, and stays recorded whatever the code
        does."""
        problem = {**(location if type(location) is dict else {}), "kind": "forbidden", "text": str(name)}
        if len(self.denied) < MOST_DENIED:
            self.denied.append(StudentError.of(problem))

    def start_check(self, seconds: float, *, protected: bool = False) -> None:
        """Begin a check, with the student's code ready for it; its calls may take `seconds` in total.

        `protected`: functions get copies of their arguments. `touched` says whether they changed their arguments.
        """
        self.make_ready(seconds)
        self.allot(seconds, protected=protected)

    def make_ready(self, seconds: float) -> None:
        """Make sure, within `seconds`, that the student's code can be called and knows what is forbidden."""
        raise NotImplementedError

    def allot(self, seconds: float, *, protected: bool = False) -> None:
        """Forget the last check; later calls may take `seconds` in total.

        Only the student's time counts, not the oracle's.
        """
        self.seconds = self.left = seconds
        self.grader.recall()
        self.grader.session = self  # a check's operations on a student's object also use the student's time
        self.grader.failure = self.grader.sent = None
        self.touched, self.protected = False, protected
        self.denied, self.first_call, self.careless = [], "", []

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Run a check again in the block. Then the session tells the first run's last call and time; forbidden calls of
        both count."""
        call, seconds, left, denied = self.last_call(), self.seconds, self.left, self.denied
        touched, protected = self.touched, self.protected
        try:
            yield
        finally:
            self.first_call, self.seconds, self.left, self.denied = call, seconds, left, denied + self.denied
            self.touched, self.protected = touched, protected

    def call_by_name(self, name: str, args: tuple, kwargs: dict):
        if self.protected:
            args, kwargs = copied((args, kwargs), {})
        self.grader.changed = False
        result = self.timed(["name", name], args, kwargs, objects=name[:1].isupper())
        self.touched |= self.grader.changed
        if type(result) is Handle and self.grader.sent and not self.grader.sent.buffers:  # tensors make it too long
            made_by(self.shown(), result)
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

        With a `harness` (see `inside.harnesses`), the harness gets the arguments and calls the function.
        """
        given = [tuple(args_for(rank)) for rank in range(p)]
        arguments, copies = copies_for(given)
        if harness:  # it returns everything relevant, and does not change the check's values
            kwargs = copied(kwargs or {}, {})
        call = RankCall(name, p, arguments, kwargs or {}, harness, machine, self.garble)
        self.grader.sent = call.shown(self.grader)
        if self.left <= 0:
            raise self.timeout()
        run = self.simulate(call)
        for collective in closed_collectives(self.forbidden[0], run.trace):
            self.deny(collective, None)
        without_time_of_its_own(harness, run.trace)
        return Ranks(run.results, run.seconds, run.trace, run.bytes_sent, arguments, self.careless, given, copies)

    def simulate(self, call: RankCall) -> Simulation:
        """Run the call on the ranks of a simulated machine."""
        raise NotImplementedError

    def timed(self, target: list, args: tuple, kwargs: dict | None, objects: bool):
        """Call within the remaining time. The worker stops the call itself, so it can report the line."""
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
                self.left = min(self.left, watch.seconds())  # no time is left, whatever the accounting of waits says
            raise
        finally:
            self.left -= watch.seconds()

    def spent(self) -> float:
        """Return the seconds that the student's code has used in this check."""
        return max(0.0, self.seconds - self.left)  # a processor's accounting of waits comes a little late

    def stopwatch(self) -> Stopwatch:
        """Return a stopwatch for the process that runs the student's code."""
        return Stopwatch()

    def timeout(self, seconds: float | None = None) -> StudentError:
        """Return the error for a time-out of the check, or of one call."""
        limit = self.seconds if seconds is None else seconds
        return StudentError("timeout", f"Your code did not finish within {limit:g} s, so it was stopped.")

    def last_call(self) -> str:
        """Return the last call by name, as the student would write it, from the sent bytes, before any change."""
        return self.first_call or self.shown()

    def shown(self) -> str:
        """Return the call that was sent last, or an empty text."""
        return shown_call(self.grader.sent, self.grader.proxies) if self.grader.sent else ""
