"""The student's side of the boundary: holds the student's names, answers calls with values, reports where code failed.

In grading it is a separate process, forked from the zygote; in a notebook it uses the kernel's own names.
It holds no checks, no expected values and no verdicts.
"""

import __future__

import ast
import builtins
import difflib
import functools
import inspect
import linecache
import operator
import types
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from autograder.boundary.limits import TimeUp, time_limit
from autograder.boundary.own import contextlib
from autograder.boundary.peer import Peer
from autograder.boundary.protocol import Frame, ProtocolError, UnsendableError
from hpcdl.lazy import whole

from . import fingerprint, shell, source, tasks
from .book import Book
from .console import AskedError, nobody_there
from .forbidden import ForbiddenCallError, Guard
from .harnesses import HARNESSES
from .location import REFERENCE, bases_of, current_line, is_of_reference, raised_at, text_of
from .modes import graphs
from .mpi_rank import machines
from .wire_comm import WireComm

FUTURE = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
OPERATORS = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")},
    **{name: getattr(operator, name) for name in ("neg", "pos", "lt", "le", "gt", "ge", "getitem", "setitem")},
    **{name: getattr(builtins, name) for name in ("getattr", "setattr", "len", "abs", "float", "list")},
}

IMMUTABLE = " of immutable type "  # Python's message if an answer tries to change a class of the machinery
STANDS_IN = (
    "an error in a function of the reference, which stands in for one of your earlier exercises here: look at what you "
    "call it with"
)


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
    AskedError: "asks",
}


class Worker(Peer):
    """Serves calls of the functions and classes in `namespace`."""

    iterates = True
    stops_on_interrupt = False  # a student's `raise KeyboardInterrupt` is an ordinary problem

    def __init__(self, namespace: dict, guard: Guard | None = None):
        """If `guard` is given, its doors are already set."""
        super().__init__()
        self.namespace, self.guard = namespace, guard or Guard()
        self.future = 0  # flags of `from __future__`
        self.loop = tasks.Loop()
        self.guard.report, self.guard.library.namespace = self.report, namespace

    def perform(self, frame: Frame) -> Frame:
        try:
            with self.running(frame.header[5]):
                return super().perform(frame)
        except BaseException as error:
            if type(error) is KeyboardInterrupt and self.stops_on_interrupt:
                raise
            return Frame(["error", self.describe(error)])

    @contextlib.contextmanager
    @whole
    def running(self, seconds: float | None):
        """Run student code in the block: at most `seconds`, watched by the guard, and without keyboard input."""
        with time_limit(seconds), self.guard.up(), nobody_there(self.namespace):
            yield

    def forbid(self, patterns: tuple, opened: tuple | None) -> None:
        """Forbid student code to call `patterns` from now on, and hpcdl except `opened`."""
        self.guard.forbid(tuple(map(str, patterns)), None if opened is None else tuple(map(str, opened)))

    def count_operators(self, operators: tuple) -> dict:
        """Count calls of torch's `operators` from now on; return the counts so far."""
        counts, self.guard.counts = dict(self.guard.counts), Counter()
        self.guard.watch(self.guard.patterns, tuple(map(str, operators)))
        return counts

    def report(self, name: str) -> None:
        """Tell the grader of a forbidden call at once: the student's code cannot undo it."""
        self.call(["forbidden", ""], (name, current_line(self.namespace)))

    def call_function(self, name: str, args: tuple, kwargs: dict):
        """Call the student's function of that name; raise if it is missing or does not accept these arguments."""
        function = self.find(name)
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_signature(name, function, args, kwargs)  # only after an error: it takes longer than most calls
            raise

    def function(self, name: str, args: tuple, kwargs: dict):
        """Return the student's function of that name; errors as in `call_function`."""
        function = self.find(name)
        check_signature(name, function, args, kwargs)
        return function

    def find(self, name: str):
        if name not in self.namespace:
            raise UndefinedError(f"`{name}` is not defined.{self.near(name)}")
        function = self.namespace[name]
        if not callable(function):
            raise UndefinedError(f"`{name}` is {type(function).__name__}, not a function.")
        return function

    def apply_operator(self, name: str, args: tuple, kwargs: dict):
        """Apply a Python operator to the student's objects."""
        if name not in OPERATORS:
            raise ProtocolError("a call of an operator that there is not")
        return OPERATORS[name](*args, **kwargs)

    def parse(self, data: bytes) -> list:
        """Return the parts of a notebook file: cells, notes, the lab's slug, bound names, text cells, stopped cells."""
        from . import (
            notebook,
        )  # on first use: it imports nbformat, which is slow

        found = notebook.parse(data)
        texts = [[text.label, text.kind, text.names] for text in found.texts]
        return [found.cells, found.notes, found.slug, sorted(found.names), texts, [*found.stopped.items()]]

    def needed(self, cells: list, exercises: list) -> tuple:
        """Return the statements that the exercises' functions need, notes for the student, fingerprints and shapes, and
        where the functions are bound."""
        functions = [name for names in exercises for name in names]
        statements, notes = source.needed(cells, functions)
        prints = [fingerprint.of(cells, tuple(names)) for names in exercises]
        shapes = [" ".join(fingerprint.shapes(cells, tuple(names))) for names in exercises]
        return statements, notes, prints, shapes, [*source.places(cells, {*functions}).items()]

    def wider(self, cells: list, functions: list, stopped: list) -> tuple:
        """Return the statements that functions need, with all others that mention one of their objects; the same
        without what a cell has after it stopped, and where cells stopped."""
        live, places = source.live(cells, functions, dict(stopped))
        return source.needed(cells, functions, wider=True)[0], live, places

    def run_rank(
        self, name: str, args: tuple, kwargs: dict, rank: int, size: int, operate: Callable | None, harness: str | None
    ):
        """Call the function as one of `size` ranks; `operate` reaches their machine, None means MPI."""
        comm = WireComm(rank, size, operate, self.namespace) if operate else machines[size]
        return self.function_of_rank(name, (*args, comm), kwargs, harness, operate)(*args, comm, **kwargs)

    def function_of_rank(
        self, name: str, args: tuple, kwargs: dict, harness: str | None, operate: Callable | None = None
    ) -> Callable:
        """Return the function itself, or the harness that builds what it needs and calls it."""
        if harness is None:
            return self.function(name, args, kwargs)
        return self.harnessed(harness, self.find(name), operate)

    def harnessed(self, harness: str, function: Callable, operate: Callable | None) -> Callable:
        """Return the harness of that name, with the student's function to call; its book, if any, is kept here."""
        run, booked = functools.partial(HARNESSES[harness].run, function), HARNESSES[harness].booked
        if not booked:
            return run

        def with_book(*args, **kwargs):
            book = Book(args[-1], HARNESSES[harness].takes(args))
            return booked(run(*args, book=book, **kwargs), book.entries)

        return with_book

    def near(self, name: str) -> str:
        found = [(key, value) for key, value in list(self.namespace.items()) if type(key) is str]
        codes = [value.__code__ for _, value in found if type(value) is types.FunctionType]
        used = {other for code in codes for other in code.co_names if other != code.co_name}
        mine = [key for key, value in found if inspect.isroutine(value) and key not in used]
        near = difflib.get_close_matches(name, mine, n=1)
        return f" Found `{near[0]}`: rename it?" if near else ""

    def run_cells(self, cells: list, opened: tuple | None = None) -> list:
        """Execute (label, source) pairs in order; a failing cell does not stop the next. Return their problems.

        hpcdl is closed to them except `opened`, as it will be to their functions.
        """
        self.forbid((), opened)
        with graphs(True):  # a cell may turn them off: the notebook's checks turn them on
            return self._run(cells)

    def _run(self, cells: list) -> list:
        problems: list = []
        for (label, code), (after, _) in zip(cells, [*cells[1:], ["", ""]], strict=True):
            filename = f"<{label}>"
            if label != REFERENCE:
                linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
            try:
                self.execute(code, filename)
            except (Exception, SystemExit, KeyboardInterrupt, ForbiddenCallError) as error:
                problems.append([label, self.describe(error)])
            if after.partition(":")[0] != label.partition(":")[0]:  # the cell's last statement
                self.loop.settle()
        return problems

    def execute(self, code: str, filename: str) -> None:
        """Run a piece of code as a cell: `from __future__` applies to all later cells, and `await` is allowed."""
        shell.before(code)
        flags = self.future | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compiled = compile(code, filename, "exec", flags=flags, dont_inherit=True)
        self.future |= compiled.co_flags & FUTURE
        if self.loop.needs(code, compiled):
            self.loop.run(compiled, self.namespace)
        else:
            exec(compiled, self.namespace)

    def error(self, problem: Any) -> Exception:
        """A function of the check failed on arguments from the student's code."""
        return RuntimeError(str(problem.get("text")))

    def describe(self, error: BaseException) -> dict:
        if type(error) is TypeError and IMMUTABLE in str(error):
            self.report(str(error).partition(IMMUTABLE)[2].strip())
        problem = {"kind": kind_of(error), "type": type(error).__name__, "text": text_of(error)}
        problem["bases"] = bases_of(error)
        if is_of_reference(error, self.namespace):
            problem |= {"type": "Exception", "text": STANDS_IN, "bases": "Exception"}
        return problem | raised_at(error, self.namespace)

    verbs: ClassVar = Peer.verbs | {
        "name": call_function,
        "operator": apply_operator,
        "rank": lambda self, name, args, kwargs: self.run_rank(name, *args),
        "execute": lambda self, _, args, kwargs: self.run_cells(*args),
        "forbid": lambda self, _, args, kwargs: self.forbid(*args),
        "count": lambda self, _, args, kwargs: self.count_operators(*args),
        "parse": lambda self, _, args, kwargs: self.parse(*args),
        "needed": lambda self, _, args, kwargs: self.needed(*args),
        "wider": lambda self, _, args, kwargs: self.wider(*args),
    }


def check_signature(name: str, function: Callable, args: tuple, kwargs: dict) -> None:
    """Raise SignatureError if `function` does not accept these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise SignatureError(f"`{name}{signature}` does not take the arguments of the exercise: {error}.") from None


def kind_of(error: BaseException) -> str:
    """Return the kind of an exception; a bare `raise NotImplementedError` is an exercise not done yet."""
    if type(error) is NotImplementedError and not error.args:
        return "not_done"
    return KINDS.get(type(error), "exception")
