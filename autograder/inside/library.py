"""Close hpcdl while a student's code runs, except what the exercise opens: points are for their own code.

A library function runs if the library itself or the checks call it; called by an answer, under any name, it knocks. The
caller is the nearest stack frame that belongs to the library or the student. Functions compiled by Numba and Triton
have no code to replace: there one door is before everything that they compiled.

A cached function's earlier table, Numba's `kernel.py_func`, and running a module's source again bypass it; a person who
looks at flagged answers, and at the code, notices them.
"""

import builtins
import functools
import importlib.abc
import importlib.machinery
import inspect
import os
import sys
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any, cast

import hpcdl
from autograder.boundary.own import contextlib

from .compilers import name_of, see_behind_doors, used_by
from .doors import owner_of

# What a check passes to answers (the machine of the ranks, networks, number formats), and what no exercise is about: an
# answer may share a statement or a module with `style.use()` of the lab's first cell.
# torch calls the memory meter in the middle of an answer that a check measures, `guarded`, `steps` and a function of
# `reducer` around each optimizer's step.
GIVEN = (
    "hpcdl.comm",
    "hpcdl.ddp.guarded",
    "hpcdl.ddp.reducer._require_wrapped",
    *(f"hpcdl.nn.{name}" for name in ("awkward", "decoder", "lenet", "stage")),
    "hpcdl.numerics.rounding.formats.Fixed",
    "hpcdl.numerics.rounding.formats.Float",
    "hpcdl.data",
    "hpcdl.files",
    "hpcdl.interrupt",
    "hpcdl.lazy",
    "hpcdl.machine",
    "hpcdl.memory",
    "hpcdl.saying",
    "hpcdl.training.process_group",
    "hpcdl.sharding.steps",
    "hpcdl.widgets.kit.style",
)
OF_DOORS = tuple(
    f"{__package__}.{name}" for name in ("doors", "forbidden", "lasting", "library")
)  # they are between the two
FOLDER = os.path.join(os.path.dirname(hpcdl.__file__), "")
CALLS_BACK = "hpcdl.comm"  # it calls functions passed to it: their owner is the caller


class Library:
    """Puts doors before hpcdl's functions, for a `guard` that is up while code of `namespace` runs."""

    def __init__(self, guard: Any):
        self.guard = guard
        self.finder: Any = None  # its entry among Python's finders
        self.namespace: dict = {}
        self.opened: tuple[str, ...] | None = None  # None: everything is open
        self.known: dict[str, bool] = {}  # whether a name is open: a loop may call its function thousands of times

    def close(self, opened: tuple[str, ...] | None) -> None:
        """Let answers call only these names, and names below them, from now on; None opens everything."""
        if opened is not None:
            self.bar_compilers()  # a cell may have imported them
        if opened == self.opened:
            return
        before, self.opened = self.opened, opened
        self.known.clear()
        if opened is None and before is not None:
            sys.meta_path.remove(self.finder)
        elif opened is not None and before is None:
            sys.meta_path.insert(0, self.finder)
        if opened is not None:
            self.guard.bar_all(_closed(imports()))  # those that were open before, too
            for function in _below(imports(), opened):
                if function not in self.guard.denied:  # by name
                    self.guard.doors.open(function)
            self.bar_copies()
            self.guard.doors.bar(cast(types.FunctionType, inspect.findsource), self.asks_for_source)

    def bar(self, module: types.ModuleType) -> None:
        """Put doors before the functions of an hpcdl module."""
        for named in closed_in(module):
            self.guard.bar(named)

    def bar_copies(self) -> None:
        """Put doors before student functions that copied the code of a closed function before it had a door."""
        barred = self.guard.doors.barred
        for value in list(self.namespace.values()):
            if type(value) is not types.FunctionType or (original := owner_of(value.__code__)) is None:
                continue
            if barred.get(original) is value.__code__:
                self.guard.bar((name_of(original), value))

    def bar_compilers(self) -> None:
        """Put a door before all functions compiled by Numba or Triton, if they are imported."""
        bar = self.guard.doors.bar
        if triton := sys.modules.get("triton.runtime.interpreter"):
            for function in (triton.InterpretedFunction.run, triton.InterpretedFunction.__call__):
                bar(function, lambda args: self.runs_compiled(frozenset((name_of(args[0].fn),))))
        if numba := sys.modules.get("numba.core.registry"):
            dispatcher = numba.CPUDispatcher
            if not hasattr(dispatcher.__call__, "__code__"):
                dispatcher.__call__ = through(dispatcher.__call__)
            bar(dispatcher.__call__, lambda args: self.runs_compiled(used_by(args[0])))
            bar(sys.modules["numba.core.typing.context"].BaseContext._get_global_type, self.compiles)
            see_behind_doors()

    def is_open(self, name: str) -> bool:
        if name not in self.known:
            is_closed = self.opened is not None and is_below(name, "hpcdl")
            self.known[name] = not is_closed or is_below(name, *GIVEN, *(self.opened or ()))
        return self.known[name]

    def denies(self, name: str) -> bool:
        """Whether the caller is an answer that must not use this name."""
        return not self.is_open(name) and not self.library_calls(name)

    def runs(self, name: str, shown: str = "") -> None:
        """Handle a call of the function with this name; reports use `shown`."""
        if not self.guard.is_down() and self.denies(name):
            self.guard.knock(shown or name)

    def runs_compiled(self, names: frozenset[str]) -> None:
        """Handle a call of compiled code that is, or uses, the functions with these names."""
        for name in names:
            if is_below(name, "hpcdl"):
                self.runs(name)
        self.guard.uses(names)

    def compiles(self, args: tuple) -> None:
        """Handle that Numba compiles what uses this function."""
        if callable(args[1]):
            self.guard.uses(frozenset((name_of(args[1]),)))

    def asks_for_source(self, args: tuple) -> None:
        """Refuse to give an answer the source of a closed function."""
        name = name_of(inspect.unwrap(args[0])) if args and callable(args[0]) else getattr(args[0], "__name__", "")
        self.runs(name, f"inspect.getsource({name})")

    def library_calls(self, name: str) -> bool:
        """Whether the nearest frame of the library or the student belongs to the library, and calls by `name`."""
        frame: types.FrameType | None = sys._getframe(4)  # the nearer ones are a door's and a guard's
        while frame is not None and frame.f_globals is not self.namespace and (side := side_of(frame)) != CHECKS:
            if side == LIBRARY and not self.is_handed(name, frame):
                return True
            frame = frame.f_back
        return False

    def is_at_rest(self) -> bool:
        """Whether the checks' machinery runs, called by no answer: its frame is nearer than any of the student's."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals is not self.namespace:
            if side_of(frame) == CHECKS:
                return True
            frame = frame.f_back
        return False

    def is_handed(self, name: str, frame: types.FrameType) -> bool:
        """Whether an open function of the library calls what an answer has handed to it: it knows no such name."""
        code, names, (of, last) = frame.f_code, frame.f_globals, name.split(".")[-2:]
        if last in names or last in code.co_names or of in names or of in code.co_names or last.startswith("__"):
            return False
        return self.is_open(f"{names.get('__name__')}.{code.co_qualname}")

    def find_spec(self, fullname: str, path: Any = None, target: Any = None):
        """Put doors into an hpcdl module that is imported later."""
        if not is_below(fullname, "hpcdl"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Barring(spec.loader, self)
        return spec


class _Barring(importlib.abc.Loader):
    """Loads a module like `loader`, then puts doors into it."""

    def __init__(self, loader: importlib.abc.Loader, library: Library):
        self.loader, self.library = loader, library

    def __getattr__(self, name: str):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        module.__loader__ = module.__spec__.loader = self.loader  # it exposes nothing of ours
        if self.library.opened is not None:
            closed_in.cache_clear()  # a reloaded module has new functions
            _closed.cache_clear()
            self.library.bar(module)
            self.library.bar_compilers()


def imports() -> Hashable:
    """Return a key that changes with each import: the number of modules, and the last one.

    It touches no other name: a forked worker would copy the memory of each.
    """
    while True:
        with contextlib.suppress(RuntimeError):  # another thread imported in between
            return len(sys.modules), next(reversed(sys.modules))


@functools.lru_cache(maxsize=4)  # each check asks, and thousands of modules are imported
def _closed(_: Hashable) -> frozenset[tuple[str, types.FunctionType]]:
    of_hpcdl = [module for name, module in list(sys.modules.items()) if f"{name}.".startswith("hpcdl.") and module]
    return frozenset(named for module in of_hpcdl for named in closed_in(module))


@functools.lru_cache(maxsize=16)
def _below(imported: Hashable, opened: tuple[str, ...]) -> tuple[types.FunctionType, ...]:
    """Return the functions that an exercise opens: what they call inside would knock in vain, thousands of times."""
    return tuple([function for name, function in _closed(imported) if is_below(name, *opened)])


@functools.cache
def closed_in(module: types.ModuleType) -> list[tuple[str, types.FunctionType]]:
    """Return the functions of an hpcdl module that no check passes to answers."""
    return [item for item in functions_of(module) if not is_below(item[0], *GIVEN)]


def functions_of(module: types.ModuleType) -> Iterator[tuple[str, types.FunctionType]]:
    """Yield the Python functions and methods that a module defines, with their names, without compiled ones."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type):
            for name, part in vars(value).items():
                yield from ((f"{name_of(value)}.{name}", function) for function in _plain(part))
        else:
            yield from ((name_of(function), function) for function in _plain(value))


def _plain(value) -> Iterator[types.FunctionType]:
    """Yield the functions inside a method, a property, a cached or wrapped function."""
    if isinstance(value, property):
        inner = [value.fget, value.fset]
    elif isinstance(value, staticmethod | classmethod):
        inner = [value.__func__]
    elif isinstance(value, functools.cached_property | functools.partial):
        inner = [value.func]
    elif type(value) is types.FunctionType:
        inner = inspect.unwrap(value)  # other functions share a wrapper's code, for example `torch.no_grad()`'s
        yield inner if type(inner) is types.FunctionType else value
        return
    else:
        inner = [getattr(value, "__wrapped__", None)] if type(value) is functools._lru_cache_wrapper else []
    for function in inner:
        if function is not None:
            yield from _plain(function)


LIBRARY, CHECKS = "hpcdl", "autograder"


def side_of(frame: types.FrameType) -> str:
    """Return whether a frame belongs to the library or the checks' machinery, except the doors; "" for all others.

    A file counts, too, since code can run with the names of any module of the library.
    """
    name = frame.f_globals.get("__name__")
    side = _side(name) if type(name) is str else ""
    return side if side != LIBRARY or frame.f_code.co_filename.startswith(FOLDER) else ""


@functools.lru_cache(maxsize=4096)  # each call of a closed function asks about several frames
def _side(name: str) -> str:
    if is_below(name, LIBRARY) and not is_below(name, CALLS_BACK):
        return LIBRARY
    return CHECKS if is_below(name, CHECKS) and name not in OF_DOORS else ""


def is_below(name: str, *wholes: str) -> bool:
    """Whether a dotted name is one of these, or inside one of them."""
    return f"{name}.".startswith(_with_dots(wholes))


@functools.lru_cache(maxsize=256)  # only a few values: from the checks and from us
def _with_dots(wholes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([f"{whole}." for whole in wholes])


def through(call: Callable) -> Callable:
    """Return an equivalent Python function, which can have a door."""

    def __call__(self, *args, **kwargs):  # noqa: N807 - a method, by the name that it will have
        return call(self, *args, **kwargs)

    names = {"__builtins__": builtins}  # none of ours; C code that imports a module needs these
    return types.FunctionType(__call__.__code__, names, "__call__", None, __call__.__closure__)
