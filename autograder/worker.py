"""The student's side of the boundary: holds the student's names, answers calls with values, tells where code failed.

In grading it is a process of its own, forked from the zygote; in a notebook it stands on the kernel's own names.
It holds no checks, no expected values and no verdicts.
"""

import builtins
import difflib
import functools
import inspect
import linecache
import operator
import sys
from collections import Counter

from .forbidden import ForbiddenCallError, Guard
from .limits import TimeUp, time_limit
from .peer import Peer
from .protocol import Frame, UnsendableError

OPERATORS = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")},
    **{name: getattr(operator, name) for name in ("neg", "pos", "lt", "le", "gt", "ge", "getitem", "setitem")},
    **{name: getattr(builtins, name) for name in ("getattr", "setattr", "len", "abs", "float", "list")},
}

REFERENCE = "reference"  # the label of code that is not the student's, and whose lines nobody is shown


class UndefinedError(Exception):
    """The student has not defined a name, or it is not callable."""


class SignatureError(Exception):
    """The student's function does not take the arguments of the exercise."""


KINDS = {
    UndefinedError: "undefined",
    SignatureError: "signature",
    UnsendableError: "unsendable",
    TimeUp: "timeout",
    ForbiddenCallError: "forbidden",
    SystemExit: "exit",
}


class Worker(Peer):
    """Serves calls of the functions and classes in `namespace`."""

    iterates = True
    stops_on_interrupt = False  # a student's `raise KeyboardInterrupt` is a problem like any other

    def __init__(self, namespace: dict):
        super().__init__()
        self.namespace = namespace
        self.guard = Guard(self.report)

    def perform(self, frame: Frame) -> Frame:
        try:
            with time_limit(frame.header[5]), self.guard.up():
                return super().perform(frame)
        except BaseException as error:
            if type(error) is KeyboardInterrupt and self.stops_on_interrupt:
                raise
            return Frame(["error", self.describe(error)])

    def invoke(self, target, args: tuple, kwargs: dict):
        kind, name = target if type(target) is list and len(target) == 2 else (None, None)
        if kind == "name":
            return self.call_function(name, args, kwargs)
        if kind == "operator" and name in OPERATORS:
            return OPERATORS[name](*args, **kwargs)
        if kind == "begin":
            return self.begin(*args)
        if kind == "count":
            return self.count_operators(*args)
        if kind == "read":
            return self.read(*args)
        if kind == "needed":
            return self.needed(*args)
        if kind == "cells":
            return self.run_cells(*args)
        if kind == "rank":
            return self.run_rank(name, *args)
        return super().invoke(target, args, kwargs)

    def begin(self, forbidden: tuple) -> None:
        """A check begins, and may not make the calls that `forbidden` names."""
        self.guard.forbid(tuple(map(str, forbidden)))

    def count_operators(self, operators: tuple) -> dict:
        """Count the calls of torch's `operators` from now on; returns the counts of those that were counted so far."""
        counts, self.guard.counts = dict(self.guard.counts), Counter()
        self.guard.forbid(self.guard.patterns, tuple(map(str, operators)))
        return counts

    def report(self, name: str) -> None:
        """Tell the grader of a forbidden call, now: what the student's code does next cannot undo it."""
        self.call(["forbidden", ""], (name, self.line()))

    def call_function(self, name: str, args: tuple, kwargs: dict):
        """Call the student's function of that name; errors when there is none or it does not take these arguments."""
        function = self.find(name)
        try:
            return function(*args, **kwargs)
        except TypeError:
            takes(name, function, args, kwargs)  # only now: to ask takes longer than most calls
            raise

    def function(self, name: str, args: tuple, kwargs: dict):
        """The student's function of that name; errors as those of `call_function`."""
        function = self.find(name)
        takes(name, function, args, kwargs)
        return function

    def find(self, name: str):
        if name not in self.namespace:
            raise UndefinedError(f"`{name}` is not defined.{self.near(name)}")
        function = self.namespace[name]
        if not callable(function):
            raise UndefinedError(f"`{name}` is {type(function).__name__}, not a function.")
        return function

    def read(self, data: bytes) -> list:
        """The parts of a notebook file: cells, notes, the lab's slug, the names that are bound."""
        from . import notebook

        found = notebook.parse(data)
        return [found.cells, found.notes, found.slug, sorted(found.names)]

    def needed(self, cells: list, exercises: list) -> tuple:
        """The statements that the exercises' functions need, notes for the student, and each one's fingerprint."""
        from . import fingerprint, source

        statements, notes = source.needed(cells, [name for names in exercises for name in names])
        return statements, notes, [fingerprint.of(cells, tuple(names)) for names in exercises]

    def run_rank(self, name: str, args: tuple, kwargs: dict, rank: int, size: int, operate, stage: str | None):
        """Call the function as one of `size` ranks; `operate` reaches the machine that joins them, None means MPI."""
        from .mpi_rank import machines
        from .wire import WireComm

        comm = WireComm(rank, size, operate, self.namespace) if operate else machines[size]
        return self.on_stage(name, (*args, comm), kwargs, stage)(*args, comm, **kwargs)

    def on_stage(self, name: str, args: tuple, kwargs: dict, stage: str | None):
        """The function itself, or the stage that builds what it needs and calls it."""
        if stage is None:
            return self.function(name, args, kwargs)
        from .stages import STAGES

        return functools.partial(STAGES[stage], self.find(name))

    def near(self, name: str) -> str:
        mine = [key for key, value in list(self.namespace.items()) if type(key) is str and inspect.isroutine(value)]
        found = difflib.get_close_matches(name, mine, n=1)
        return f" Found `{found[0]}`: rename it?" if found else ""

    def run_cells(self, cells: list) -> list:
        """Execute (label, source) pairs in order; a cell that fails does not stop the next. Returns their problems."""
        problems = []
        for label, source in cells:
            filename = f"<{label}>"
            if label != REFERENCE:
                linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
            try:
                exec(compile(source, filename, "exec", dont_inherit=True), self.namespace)
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                problems.append([label, self.describe(error)])
        return problems

    def error(self, problem) -> Exception:
        """A function of the check failed on what the student's code passed to it."""
        return RuntimeError(str(problem.get("text")))

    def describe(self, error: BaseException) -> dict:
        problem = {"kind": kind_of(error), "type": type(error).__name__, "text": text_of(error)}
        return problem | self.place(error)

    def line(self) -> dict:
        """The line of the student's own code that is being run."""
        frame = sys._getframe()
        while frame is not None and frame.f_globals is not self.namespace:
            frame = frame.f_back
        return self.shown(frame.f_code, frame.f_lineno) if frame else {}

    def place(self, error: BaseException) -> dict:
        """Where in the student's own code `error` was raised: the deepest frame that runs in their namespace."""
        place, step = {}, error.__traceback__
        while step is not None:
            if step.tb_frame.f_globals is self.namespace:
                place = self.shown(step.tb_frame.f_code, step.tb_lineno)
            step = step.tb_next
        return place

    def shown(self, code, line: int) -> dict:
        source = linecache.getline(code.co_filename, line, self.namespace).strip()
        return {"function": code.co_name, "line": line, "source": source[:200]}


def takes(name: str, function, args: tuple, kwargs: dict) -> None:
    """SignatureError where `function` does not take these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without one
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise SignatureError(f"`{name}{signature}` does not take the arguments of the exercise: {error}.") from None


def kind_of(error: BaseException) -> str:
    """The kind of problem an exception is; a bare `raise NotImplementedError` is an exercise not done yet."""
    if type(error) is NotImplementedError and not error.args:
        return "not_done"
    return KINDS.get(type(error), "exception")


def text_of(error: BaseException) -> str:
    try:
        return str(error)[:500]
    except Exception:
        return "(its message cannot be shown)"
