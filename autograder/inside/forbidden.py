"""Deny calls that an answer must not make: torch operators in the dispatcher, Python functions by name.

    lab.exercise("conv_direct", ..., forbid=(*CONVOLUTION, "hpcdl.conv"), instead="Write it with loops and sums.")

A pattern with `::` names operators of torch (`aten::convolution`). Our kernels come before torch's own in the
dispatcher, so aliases, modules, `torch.ops`, autograd and other threads all meet the same door, and allowed operators
lose no time. A dotted name is a Python function, or a module with all its functions and the modules below it: the code
inside the function is replaced, so an alias does not help there either (`doors`). hpcdl itself is closed to all answers
except what their exercise opens (`library`).

This proves that a denied call was made: the grader is told at once, and that cannot be undone. It does not prove that
there was no such call. It runs in the student's process: code that dismantles the dispatcher, reloads a module's
source, or computes in NumPy or C, bypasses it. So a person must look at flagged answers, and at the code.
"""

import functools
import importlib
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import torch

from autograder.boundary.own import contextlib
from hpcdl.lazy import whole

from . import packages
from .doors import Doors, opaque
from .dotted import imported, python_functions
from .library import Library, imports, is_below, name_of
from .modes import graphs
from .once import BARRED
from .operators import matching, watch_only, watching
from .shims import NAMED, SHIMS

CONVOLUTION = ("*::*conv[!e]*",)  # every operator with convolution in its name, including mkldnn's; not `_convert_...`
FOURIER = ("aten::_fft_*",)

BACKWARD = "torch.autograd.backward"  # forbidding it forbids all of autograd
NO_GRAPH = "does not require grad and does not have a grad_fn"  # torch, of a backward pass without a graph
_push: Any = torch._C._autograd._push_saved_tensors_default_hooks
_pop: Any = torch._C._autograd._pop_saved_tensors_default_hooks
EXCLUDED = "torch._C._dispatch_tls_set_dispatch_key_excluded"
BackendSelect, _is_excluded = torch._C.DispatchKey.BackendSelect, torch._C._dispatch_tls_is_dispatch_key_excluded

Named = tuple[str, types.FunctionType]


class ForbiddenCallError(BaseException):
    """Raised in an answer instead of a forbidden call; `except Exception` does not hide it."""


def finder(find: Callable) -> Any:
    """Return an entry for `sys.meta_path` that exposes nothing of `find`."""
    return types.SimpleNamespace(find_spec=opaque(find))


class Guard:
    """Denies calls of `patterns` while it is up: it calls `report(name)`, and the caller gets the error.

    It can also count calls of operators, for example of matrix products. Doors stay in place from one exercise to the
    next and ask what is currently forbidden, because finding functions takes milliseconds.
    """

    def __init__(self, report: Callable[[str], object] = print, is_other: Callable[[], bool] = lambda: False):
        """`is_other()` tells whether the current thread is neither the answer's nor one that the answer started."""
        self.report, self.is_other, self.is_up = report, is_other, False
        self.patterns: tuple[str, ...] = ()
        self.counted: tuple[str, ...] = ()
        self.counts: Counter[str] = Counter()  # calls of operators that are only counted
        self.missed: list[str] = []  # forbidden calls between two calls of the answer, to be reported in the next one
        self.refused: frozenset[str] = frozenset()  # operators, with their overloads
        self.counting: frozenset[str] = frozenset()
        self.watchers: dict[str, object] = {}  # by operator; some wait for a later exercise
        self.denied: frozenset[types.FunctionType] = frozenset()
        self.named: frozenset[str] | None = None  # packages that get doors if a notebook imported them; None: all
        self.doors, self.finder, self.library = Doors(), finder(self.find_spec), Library(self)
        self.library.finder = finder(self.library.find_spec)

    def forbid(self, patterns: tuple[str, ...], opened: tuple[str, ...] | None = None) -> None:
        """Forbid calls of `patterns` from now on, and all calls of hpcdl except `opened`, unless that is None."""
        self.watch(patterns, ())
        self._look_for(patterns)
        self.library.close(opened)
        if not patterns and opened is None:
            self.doors.open_all()
            self.watchers.clear()

    def watch(self, patterns: tuple[str, ...], counted: tuple[str, ...]) -> None:
        """Deny calls of the operators among `patterns`, and count calls of the operators `counted`."""
        if (patterns, counted) == (self.patterns, self.counted):
            return
        self.patterns, self.counted = patterns, counted
        self.refused, self.counting = operators(patterns), operators(counted)
        self._keep()

    def _keep(self) -> None:
        """Watch what is refused and counted now, and no other operator."""
        watch_only(self.refused | self.counting, self.watchers, self.watching)

    def prepare(self, patterns: tuple[str, ...]) -> None:
        """Watch the operators of `patterns`, and put doors before its functions: processes that are forked later have
        them."""
        watch_only({*self.watchers, *operators(patterns)}, self.watchers, self.watching)
        self.bar_all(_named(functions_of(packages.places(dotted_of(patterns), self.named))))

    def look_for(self, named: set[str]) -> None:
        """Put doors before the functions of packages that an answer names, too: for a notebook."""
        if self.named is not None and not named <= self.named:
            self.named |= named
            self._look_for(self.patterns)

    def watching(self, name: str) -> object:
        return watching(name, self.meet)

    def _look_for(self, patterns: tuple[str, ...]) -> None:
        """Put doors before the functions that `patterns` name, including modules imported since."""
        dotted = dotted_of(patterns)
        if (found := functions_of(packages.places(dotted, self.named))) is self.denied:
            return
        self.denied = found
        self.bar_all(_named(found))
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self.finder)
        if dotted:
            sys.meta_path.insert(0, self.finder)

    def bar_all(self, functions: frozenset[Named]) -> None:
        """Put doors before functions: each knocks with its name."""
        for named in functions:
            if named[1] not in self.doors.barred:
                self.bar(named)

    def bar(self, named: Named) -> None:
        """Put a door before a function, which knocks with its name."""
        self.doors.bar(named[1], functools.partial(self.called, *named))

    def denies(self, name: str) -> bool:
        """Whether an answer must not call a C function that has a shim, or import hpcdl without doors."""
        is_closed = name == BARRED and self.library.opened is not None
        if self.is_down():
            return False
        return name in SHIMS or is_closed or packages.is_closed(name, self.patterns)

    def is_down(self) -> bool:
        """Whether no answer runs here: neither in a call, nor between two, as a thread or a finalizer may."""
        return self.is_other() if self.is_up else self.library.is_at_rest()

    def called(self, name: str, function: types.FunctionType, args: tuple) -> None:
        if self.is_down():
            return
        if self.library.denies(name) or (function in self.denied and not packages.by_others(name, self.patterns)):
            self.knock(name)

    def uses(self, names: frozenset[str]) -> None:
        """Knock if an answer's compiled code uses a function that an exercise forbids."""
        if (closed := packages.one_closed(names, self.patterns)) and not self.is_down():
            self.knock(closed)

    @contextlib.contextmanager
    @whole
    def up(self, is_up: bool = True):
        """Run the student's code in the block; `up(False)` is for a callback into the check."""
        before, self.is_up = self.is_up, is_up
        state: Any = contextlib.nullcontext()
        if self.forbids_derivatives and is_up != before:
            state = self.watched() if is_up else graphs(True)
        try:
            while is_up and self.missed:
                self.knock(self.missed.pop())
            if is_up and _is_excluded(BackendSelect):  # a cell switched our kernels off, for good
                self.knock(EXCLUDED)
            with state, self.met(is_up):
                yield
        except RuntimeError as error:
            if is_up and self.forbids_derivatives and NO_GRAPH in str(error):
                self.knock(BACKWARD)
            raise
        finally:
            self.is_up = before

    def met(self, is_up: bool) -> contextlib.AbstractContextManager:
        """Return a block in which calls on this thread meet the watchers, or not; here all calls always do."""
        return contextlib.nullcontext()

    @property
    def forbids_derivatives(self) -> bool:
        return BACKWARD in self.patterns

    @contextlib.contextmanager
    @whole
    def watched(self):
        """Record no graph in the block on this thread, and let a backward pass that reads saved tensors knock."""
        with graphs(not self.forbids_derivatives):
            _push(_as_it_is, self.unpack)
            try:
                yield
            finally:
                _pop()

    def enable_graphs(self, enabled: object) -> None:
        """Knock if an answer turns graphs on where derivatives are forbidden."""
        if enabled and self.forbids_derivatives:
            self.knock("torch.enable_grad")

    def unpack(self, kept: Any) -> Any:
        if self.forbids_derivatives:
            self.knock(BACKWARD)
        return kept

    def knock(self, name: str) -> None:
        """Handle a call of a forbidden function, by the student's code or others, or while the guard is down."""
        if self.is_down():
            return
        if self.is_up:
            with self.up(False):
                self.report(name)
        else:  # the grader may be sending the next call just now
            self.missed.append(name)
        raise ForbiddenCallError(f"`{name}` is forbidden in this exercise")

    def meet(self, operator: str) -> None:
        """Refuse or count a call of an operator, or neither."""
        name = operator.partition(".")[0]
        if operator in self.refused:
            self.knock(name)
        elif operator in self.counting:
            self.counts[name] += self.is_up and not self.is_other()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None):
        """Refuse an answer's import of a forbidden module, but not a compiler's; the import system calls this first."""
        closed = packages.is_closed(fullname, self.patterns) and not packages.is_students(fullname)
        if closed and not packages.by_others(fullname, self.patterns):
            self.knock(fullname)


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def operators(patterns: tuple[str, ...]) -> frozenset[str]:
    """Return the operators named by patterns with `::`; see `operators.matching`."""
    return matching(patterns, imports())


def dotted_of(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns that name Python functions, not operators."""
    return tuple(pattern for pattern in patterns if "::" not in pattern)


def functions_of(dotted: tuple[str, ...]) -> frozenset[types.FunctionType]:
    """Return the `python_functions` of dotted names; searched again only if relevant modules changed."""
    return _functions_in(_meant(imports(), dotted), dotted)


@functools.lru_cache(maxsize=256)
def _named(functions: frozenset[types.FunctionType]) -> frozenset[Named]:
    return frozenset((name_of(function), function) for function in functions)


@functools.lru_cache(maxsize=64)  # every check calls this, with thousands of imported modules
def _meant(_: Hashable, dotted: tuple[str, ...]) -> frozenset[str]:
    modules = [name.rpartition(".")[0] for name in dotted]
    owners = {*modules, *(name.rpartition(".")[0] for name in modules)}
    return frozenset(name for name, _ in imported() if name in owners or is_below(name, *dotted))


@functools.lru_cache(maxsize=256)
def _functions_in(modules: frozenset[str], dotted: tuple[str, ...]) -> frozenset[types.FunctionType]:
    return frozenset(f for f in python_functions(dotted) if packages.is_installed(f))


def unknown(patterns: tuple[str, ...]) -> list[str]:
    """Return the patterns that forbid nothing, for the author to fix."""
    for pattern in (pattern for pattern in patterns if "::" not in pattern):
        for module in (pattern, pattern.rpartition(".")[0], pattern.rpartition(".")[0].rpartition(".")[0]):
            with contextlib.suppress(ImportError, ValueError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a framework's warnings about its own modules do not concern us
                importlib.import_module(module)
    return [
        pattern
        for pattern in patterns
        if not operators((pattern,))
        and not python_functions(dotted_of((pattern,)))
        and pattern not in NAMED
        and not hasattr(sys.modules.get(pattern), "__path__")  # a package: imports of its modules are refused
    ]
