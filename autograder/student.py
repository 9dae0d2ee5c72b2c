"""What a check sees as `student`: attributes that call the student's code and return plain values.

A `Session` is one student's code, ready to be called under a time limit. `local.LocalSession` calls it in this process,
as `check` does in a notebook; `remote.RemoteSession` calls it in a sandboxed process, as grading does. Both send the
same frames, so a check sees the same values either way.
"""

import contextlib
from dataclasses import dataclass

import torch

from . import show
from .checks import CheckFailure, same
from .decode import Reader
from .handle import Handle
from .limits import Stopwatch
from .peer import Peer
from .protocol import Frame


@dataclass
class StudentError(Exception):
    """The student's code gave no value. `kind` says why: not_done, undefined, signature, exception, timeout, ended,
    unsendable; `text` says it in words, and the rest says where in the student's own code."""

    kind: str
    text: str
    type: str = ""
    function: str = ""
    line: int = 0
    source: str = ""

    def __str__(self):
        return self.text

    @classmethod
    def of(cls, problem) -> "StudentError":
        """From the other side's report, of which only short plain values are taken over."""
        problem = problem if type(problem) is dict else {}
        wanted = {"kind": str, "text": str, "type": str, "function": str, "line": int, "source": str}
        found = {key: problem[key] for key, kind in wanted.items() if type(problem.get(key)) is kind}
        found = {key: value[:500] if type(value) is str else value for key, value in found.items()}
        known = ("not_done", "undefined", "signature", "exception", "timeout", "exit", "unsendable", "forbidden")
        if found.get("kind") not in known:
            found["kind"] = "exception"
        return cls(**{"text": "", **found})


class Grader(Peer):
    """The trusted side: calls by name; the other side may call only the functions that it was passed."""

    def __init__(self):
        super().__init__()
        self.objects = False
        self.session: Session | None = None
        self.failure: CheckFailure | None = None
        self.changed = False  # whether a call has changed one of its arguments
        self.sent: Frame | None = None  # the last call by name, to show it when a check fails

    def call(self, target, args=(), kwargs=None, *, objects=False, seconds=None):
        self.objects = objects
        result = super().call(target, args, kwargs, objects=objects, seconds=seconds)
        if self.failure is not None:  # raised by a check's own function, which the student's code had called
            raise self.failure
        return result

    def invoke(self, target, args: tuple, kwargs: dict):
        if target == ["forbidden", ""]:
            return self.session.deny(*args)
        return super().invoke(target, args, kwargs)

    def accept(self, argument, contents) -> None:
        self.changed |= type(argument) is not torch.Generator and not same(argument, contents)
        super().accept(argument, contents)

    def lends(self, objects: bool) -> bool:
        return objects and self.objects

    def describe(self, error: BaseException) -> dict:
        if isinstance(error, CheckFailure):
            self.failure = error
        return super().describe(error)

    def error(self, problem) -> Exception:
        return self.failure or StudentError.of(problem)

    def make_proxy(self, number: int, is_function: bool, name: str):
        if is_function and not self.objects:
            return super().make_proxy(number, is_function, name)
        return Handle(self, number, name)  # a method too: what it returns may be an object


class Student:
    """`student.f(...)` calls the student's `f`. A capitalised name is a class, whose objects stay as handles."""

    def __init__(self, session: "Session"):
        self.__dict__["_session"] = session

    def ranks(self, name: str, p: int, args_for, kwargs: dict | None = None, **machine):
        """Call `name` on each of `p` ranks of a simulated machine; see `autograder.ranks`."""
        from .ranks import run_ranks

        return run_ranks(self._session, name, p, args_for, kwargs, **machine)

    @contextlib.contextmanager
    def operations(self, *operators: str):
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
        self.forbidden: tuple[str, ...] = ()  # calls that the exercise at hand forbids
        self.denied: list[StudentError] = []  # those that were made all the same since `begin`

    def forbid(self, patterns: tuple[str, ...]) -> None:
        """From the next check on, the student's code may not make the calls that `patterns` name."""
        self.forbidden = patterns

    def deny(self, name, place) -> None:
        """The other side reports a forbidden call. It was denied, and stays on the record whatever the code does."""
        problem = {**(place if type(place) is dict else {}), "kind": "forbidden", "text": str(name)}
        self.denied.append(StudentError.of(problem))

    def begin(self, seconds: float, *, protected: bool = False) -> None:
        """Start a check: its calls may take `seconds` together. Only the student's time counts, not the oracle's.

        `protected`: functions get copies of their arguments. `touched` says whether they changed those they got.
        """
        self.seconds = self.left = seconds
        self.grader.recall()
        self.grader.session = self  # what a check does to a student's object takes the student's time too
        self.grader.failure = self.grader.sent = None
        self.touched, self.protected = False, protected
        self.denied = []

    def call_by_name(self, name: str, args, kwargs):
        if self.protected:
            args, kwargs = copied((args, kwargs), {})
        self.grader.changed = False
        result = self.timed(["name", name], args, kwargs, objects=name[:1].isupper())
        self.touched |= self.grader.changed
        return result

    def timed(self, target, args, kwargs, objects):
        """Call within the time that is left. The worker stops the call itself, and so can say in which line it was."""
        if self.left <= 0:
            raise self.timeout()
        watch = self.stopwatch()
        try:
            return self.grader.call(target, args, kwargs, objects=objects, seconds=self.left)
        except StudentError as error:
            if error.kind == "timeout":
                error.text = self.timeout().text
            raise
        finally:
            self.left -= watch.seconds()

    def spent(self) -> float:
        """Seconds that the student's code has taken since `begin`."""
        return max(0.0, self.seconds - self.left)  # a processor's account of who waited comes a little late

    def stopwatch(self) -> Stopwatch:
        """Counts the seconds of the process that runs the student's code."""
        return Stopwatch()

    def timeout(self) -> StudentError:
        return StudentError("timeout", f"Your code did not finish within {self.seconds:g} s, so it was stopped.")

    def last_call(self) -> str:
        """The last call by name, as the student would write it; from the bytes that were sent, before any change."""
        return shown_call(self.grader.sent, self.grader.proxies) if self.grader.sent else ""


def copied(value, copies: dict):
    """Tensors, lists, dicts and tuples copied, each once; the rest as it is."""
    if id(value) in copies:
        return copies[id(value)]
    if type(value) is torch.Tensor:
        copy = value.detach().clone().requires_grad_(value.requires_grad)
    elif type(value) is dict:
        copy = {key: copied(item, copies) for key, item in value.items()}
    elif type(value) in (list, tuple):
        copy = type(value)(copied(item, copies) for item in value)
    else:
        return value
    copies[id(value)] = copy
    return copy


def shown_call(frame: Frame, handles: dict) -> str:
    """`mse_loss(tensor(...), ...)` for a call that was sent, with an argument a line where one line is too long."""
    reader = Reader(frame, _Names(handles))
    _, (_, name), args, kwargs, *_ = frame.header
    args, kwargs = reader.read(args), reader.read(kwargs)
    shown = [show.show(value) for value in args] + [f"{key}={show.show(value)}" for key, value in kwargs]
    line = f"{name}({', '.join(shown)})"
    return line if len(line) <= 90 else f"{name}(\n" + "".join(f"    {part},\n" for part in shown) + ")"


class _Names(Peer):
    """Reads handles as their names only, those on the student's own objects (by number) too."""

    def __init__(self, handles):
        super().__init__()
        self.exports = {number: show.Named(repr(handle)) for number, handle in handles.items()}

    def make_proxy(self, number, is_function, name):
        return show.Named(name)
