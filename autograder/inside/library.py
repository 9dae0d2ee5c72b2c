"""hpcdl is closed while a student's code runs, but for what the exercise opens: its points are for what they wrote.

A function of the library runs when the library itself calls it, or the code of the checks; called by an answer, under
whatever name, it knocks. Who calls is the nearest frame on the stack that is either's. Functions that numba and Triton
compiled have no code to replace: there the door is before all that they compiled.

A table that a cached function has made before, `kernel.py_func` of numba's, and a module's source that is run anew are
ways past it: a person who looks at what is flagged, and at the code, sees them.
"""

import functools
import importlib.abc
import importlib.machinery
import inspect
import sys
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any, cast

from .doors import behind, is_door

# What a check hands over: the machine that ranks run on, networks, number formats; and what no exercise asks for. The
# memory meter is called by torch, in the middle of an answer that a check measures.
GIVEN = (
    "hpcdl.comm",
    "hpcdl.nn.awkward",
    "hpcdl.nn.decoder",
    "hpcdl.nn.lenet",
    "hpcdl.nn.stage",
    "hpcdl.numerics.rounding.formats.Fixed",
    "hpcdl.numerics.rounding.formats.Float",
    "hpcdl.data",
    "hpcdl.files",
    "hpcdl.interrupt",
    "hpcdl.lazy",
    "hpcdl.machine",
    "hpcdl.memory",
    "hpcdl.training.process_group",
)
OF_DOORS = tuple(f"{__package__}.{name}" for name in ("doors", "forbidden", "library"))  # they stand between the two
CALLS_BACK = "hpcdl.comm"  # calls functions that it is given: who gave them is who calls


def see_behind_doors() -> None:
    """Let Numba compile the own code of functions that have a door."""
    from numba.core.bytecode import FunctionIdentity

    find = FunctionIdentity.from_function.__func__  # type: ignore[attr-defined]
    if find is not _identity_behind:
        _identity_behind.__wrapped__ = find  # type: ignore[attr-defined]
        setattr(FunctionIdentity, "from_function", classmethod(_identity_behind))  # noqa: B010


def _identity_behind(cls, function):
    """Return what Numba knows of a function, of the one behind its door if it has one."""
    if type(function) is types.FunctionType and is_door(function.__code__):
        function = behind(function.__code__)
    return _identity_behind.__wrapped__(cls, function)  # type: ignore[attr-defined]


class Library:
    """Doors before the functions of hpcdl, for a `guard` that is up while code of `namespace` runs."""

    def __init__(self, guard: Any):
        self.guard = guard
        self.finder: Any = None  # what stands for it among Python's finders
        self.namespace: dict = {}
        self.opened: tuple[str, ...] | None = None  # None: all of it is open
        self.known: dict[str, bool] = {}  # whether a name is open: a loop may call its function thousands of times

    def close(self, opened: tuple[str, ...] | None) -> None:
        """From now on answers may call what has one of these names, or is below it, and no more; None: all."""
        if opened == self.opened:
            return
        before, self.opened = self.opened, opened
        self.known.clear()
        if opened is None and before is not None:
            sys.meta_path.remove(self.finder)
        elif opened is not None and before is None:
            sys.meta_path.insert(0, self.finder)
            for name in _of_hpcdl(imports()):
                if module := sys.modules.get(name):
                    self.bar(module)
            self.bar_copies()
            self.guard.doors.bar(cast(types.FunctionType, inspect.findsource), self.asks_for_source)
            self.bar_compilers()

    def bar(self, module: types.ModuleType) -> None:
        """Doors before the functions of a module of hpcdl's."""
        for called, function in closed_in(module):
            self.guard.bar(function, called)

    def bar_copies(self) -> None:
        """Doors before functions of the student's that were made of the code of a closed one before it had a door."""
        closed = {id(code): function for function, code in self.guard.doors.barred.items()}
        for value in list(self.namespace.values()):
            if type(value) is types.FunctionType and (original := closed.get(id(value.__code__))):
                self.guard.bar(value, name_of(original))

    def bar_compilers(self) -> None:
        """A door before all functions that numba or Triton has compiled, if one of them is here."""
        bar = self.guard.doors.bar
        if triton := sys.modules.get("triton.runtime.interpreter"):
            for function in (triton.InterpretedFunction.run, triton.InterpretedFunction.__call__):
                bar(function, lambda args: self.runs(name_of(args[0].fn)))
        if numba := sys.modules.get("numba.core.registry"):
            dispatcher = numba.CPUDispatcher
            if not hasattr(dispatcher.__call__, "__code__"):
                dispatcher.__call__ = through(dispatcher.__call__)
            bar(dispatcher.__call__, lambda args: self.runs(name_of(args[0].py_func)))
            see_behind_doors()

    def is_open(self, name: str) -> bool:
        if name not in self.known:
            self.known[name] = (
                self.opened is None or not is_below(name, "hpcdl") or is_below(name, *GIVEN, *self.opened)
            )
        return self.known[name]

    def denies(self, name: str) -> bool:
        """Whether it is an answer that calls what has this name, and may not."""
        return not self.is_open(name) and not self.library_calls()

    def runs(self, name: str, shown: str = "") -> None:
        """A function of this name is to run; `shown` is what to call it."""
        if self.guard.is_up and self.denies(name):
            self.guard.knock(shown or name)

    def asks_for_source(self, args: tuple) -> None:
        """The source of a closed function is not for an answer to run."""
        name = name_of(inspect.unwrap(args[0])) if args and callable(args[0]) else getattr(args[0], "__name__", "")
        self.runs(name, f"inspect.getsource({name})")

    def library_calls(self) -> bool:
        """Whether the nearest frame that is the library's or the student's is the library's."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals is not self.namespace and not is_of_checks(frame):
            if is_of_library(frame):
                return True
            frame = frame.f_back
        return False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None):
        """A module of hpcdl's that is imported later gets its doors when it is there."""
        if not is_below(fullname, "hpcdl"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Barring(spec.loader, self)
        return spec


class _Barring(importlib.abc.Loader):
    """Loads a module as `loader` does, and then puts doors into it."""

    def __init__(self, loader: importlib.abc.Loader, library: Library):
        self.loader, self.library = loader, library

    def __getattr__(self, name: str):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        module.__loader__ = module.__spec__.loader = self.loader  # which leads to nothing of ours
        if self.library.opened is not None:
            closed_in.cache_clear()  # a module that is loaded again has other functions
            self.library.bar(module)
            self.library.bar_compilers()


def imports() -> Hashable:
    """It is another one after each import: how many modules there are, and which was the last to come."""
    names = list(sys.modules)  # in one go: another thread may be importing
    return len(names), names[-1]


@functools.lru_cache(maxsize=4)  # each check asks, and thousands of modules are imported
def _of_hpcdl(_: Hashable) -> list[str]:
    return [name for name in list(sys.modules) if f"{name}.".startswith("hpcdl.")]


@functools.cache
def closed_in(module: types.ModuleType) -> list[tuple[str, types.FunctionType]]:
    """The functions of a module of hpcdl's that no check hands over."""
    return [item for item in functions_of(module) if not is_below(item[0], *GIVEN)]


def functions_of(module: types.ModuleType) -> Iterator[tuple[str, types.FunctionType]]:
    """The Python functions that a module defines, methods too, with their names; not those that are compiled."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type):
            for name, part in vars(value).items():
                yield from ((f"{name_of(value)}.{name}", function) for function in _plain(part))
        else:
            yield from ((name_of(function), function) for function in _plain(value))


def _plain(value) -> Iterator[types.FunctionType]:
    """The functions of a method, a property, a cached or wrapped function."""
    if isinstance(value, property):
        inner = [value.fget, value.fset]
    elif isinstance(value, staticmethod | classmethod):
        inner = [value.__func__]
    elif isinstance(value, functools.cached_property | functools.partial):
        inner = [value.func]
    elif type(value) is types.FunctionType:
        inner = inspect.unwrap(value)  # the code of a wrapper, as that of `torch.no_grad()`, is others' too
        yield inner if type(inner) is types.FunctionType else value
        return
    else:
        inner = [getattr(value, "__wrapped__", None)] if type(value) is functools._lru_cache_wrapper else []
    for function in inner:
        if function is not None:
            yield from _plain(function)


def name_of(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def is_of_library(frame: types.FrameType) -> bool:
    """A frame of a module of hpcdl's: by its file too, since code can be run with any module's names."""
    name, file = frame.f_globals.get("__name__"), frame.f_globals.get("__file__")
    is_own = type(name) is str and is_below(name, "hpcdl") and not is_below(name, CALLS_BACK)
    return is_own and frame.f_code.co_filename == file


def is_of_checks(frame: types.FrameType) -> bool:
    """A frame of the checks' machinery, but for the doors themselves."""
    name = frame.f_globals.get("__name__")
    return type(name) is str and name not in OF_DOORS and is_below(name, "autograder")


def is_below(name: str, *wholes: str) -> bool:
    """Whether a dotted name is one of these, or of something in one of them."""
    return f"{name}.".startswith(_with_dots(wholes))


@functools.lru_cache(maxsize=256)  # the wholes are the checks' and ours, and few
def _with_dots(wholes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([f"{whole}." for whole in wholes])


def through(call: Callable) -> Callable:
    """A function of Python's that does the same: one that a door fits."""

    def __call__(self, *args, **kwargs):  # noqa: N807 - a method, by the name that it will have
        return call(self, *args, **kwargs)

    return __call__
