"""Calls that an answer may not make: torch's operators at the door behind which they all run, and Python's by name.

    lab.exercise("conv_direct", ..., forbid=(*CONVOLUTION, "hpcdl.conv"), instead="Write it with loops and sums.")

A pattern with `::` names operators of torch (`aten::convolution`). Kernels of ours stand in the dispatcher before
torch's own, so an alias, a module, `torch.ops`, autograd and another thread all come to the same door, and operators
that are allowed lose no time. A dotted name is a Python function, or a module with all its functions and the modules
below it: the code inside the function is replaced, so an alias does not help there either (`doors`). hpcdl itself is
closed to all answers but for what their exercise opens (`library`).

What this proves: a call that was denied was made. It is told to the grader at once, and cannot be taken back. What it
does not prove: that there was none. It runs in the student's process; code that takes the dispatcher apart, loads a
module's source anew, or computes in NumPy or C, gets past it. So a person looks at what is flagged, and at the code.
"""

import contextlib
import fnmatch
import functools
import importlib
import importlib.abc
import inspect
import re
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch._C import DispatchKey

from hpcdl.lazy import whole

from .doors import Doors, opaque
from .library import Library, imports, is_below, name_of
from .shims import SHIMS

CONVOLUTION = ("*::*conv[!e]*",)  # every operator with convolution in its name, also mkldnn's; not `_convert_...`
FOURIER = ("aten::_fft_*",)

# Above the kernels of each device and below autograd. Operators that compute have no kernel of their own here.
DOOR = "BackendSelect"
BEYOND = torch._C._dispatch_keyset_full_after(DispatchKey.BackendSelect)

BACKWARD = "torch.autograd.backward"  # where it is forbidden, all of autograd is
_autograd: Any = torch._C._autograd

KINDS = (type, types.FunctionType, functools._lru_cache_wrapper)  # in which there is code to replace


class ForbiddenCallError(BaseException):
    """Raised in an answer instead of a call that the exercise forbids; no `except Exception` hides it."""


class Finder(importlib.abc.MetaPathFinder):
    """Stands among Python's finders for one of ours, and leads to nothing of it."""

    __slots__ = ("find_spec",)

    def __init__(self, find: Callable):
        self.find_spec = opaque(find)  # type: ignore[method-assign]


class Guard:
    """Denies the calls of `patterns` while it is up: `report(name)` is told, and the caller gets the error.

    It can count calls of operators, too: of matrix products, say, where an exercise is about their number. A door stays
    where it is from one exercise to the next, and asks what is forbidden now; to look for them takes milliseconds.
    """

    def __init__(self, report: Callable[[str], object] = print, is_other: Callable[[], bool] = lambda: False):
        """`is_other()`: the thread that runs is neither the answer's nor one that the answer has started."""
        self.report, self.is_other, self.is_up = report, is_other, False
        self.patterns: tuple[str, ...] = ()
        self.counted: tuple[str, ...] = ()
        self.counts: Counter[str] = Counter()  # calls of the operators that are counted, not denied
        self.libraries: dict[str, torch.library.Library] = {}
        self.denied: frozenset[types.FunctionType] = frozenset()
        self.doors, self.finder, self.library = Doors(), Finder(self.find_spec), Library(self)
        self.library.finder = Finder(self.library.find_spec)

    def forbid(self, patterns: tuple[str, ...], opened: tuple[str, ...] | None = None) -> None:
        """Forbid the calls of `patterns` from now on, and of hpcdl's all but `opened`, unless that is None."""
        self.watch(patterns, ())
        self._look_for(patterns)
        self.library.close(opened)
        if not patterns and opened is None:
            self.doors.open_all()

    def watch(self, patterns: tuple[str, ...], counted: tuple[str, ...]) -> None:
        """Deny the calls of the operators among `patterns`, and count those of the operators `counted`."""
        if (patterns, counted) == (self.patterns, self.counted):
            return
        self.libraries.clear()  # torch takes the kernels of a library back when it is gone
        self.patterns, self.counted = patterns, counted
        denied = operators(patterns)
        for name in denied:
            self._watch_operator(name, self.knock)
        for name in set(operators(counted)) - set(denied):
            self._watch_operator(name, self.count)

    def _look_for(self, patterns: tuple[str, ...]) -> None:
        """Doors before the functions that `patterns` name, in modules that were imported since, too."""
        dotted = dotted_of(patterns)
        if (found := functions_of(dotted)) is self.denied:
            return
        self.denied = found
        for function in self.denied:
            self.bar(function, name_of(function))
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self.finder)
        if dotted:
            sys.meta_path.insert(0, self.finder)

    def bar(self, function: types.FunctionType, name: str) -> None:
        """A door before a function: who comes is asked under the `name`."""
        self.doors.bar(function, lambda args: self.called(function, name))

    def denies(self, name: str) -> bool:
        """Whether an answer may not call a function of C's that has a shim in front."""
        return self.is_up and not self.is_other() and name in SHIMS

    def called(self, function: types.FunctionType, name: str) -> None:
        if self.is_up and (function in self.denied or self.library.denies(name)):
            self.knock(name)

    @contextlib.contextmanager
    @whole
    def up(self, is_up: bool = True):
        """The student's code runs in the block; `up(False)`: a function of the check that it called back."""
        before, self.is_up = self.is_up, is_up
        watch = self.watched() if is_up and not before and self.forbids_derivatives else contextlib.nullcontext()
        try:
            with watch:
                yield
        finally:
            self.is_up = before

    @property
    def forbids_derivatives(self) -> bool:
        return BACKWARD in self.patterns

    @contextlib.contextmanager
    @whole
    def watched(self):
        """In the block, on this thread, a backward pass knocks, from Python or from C: it asks for what was kept."""
        _autograd._push_saved_tensors_default_hooks(_as_it_is, self.unpack)
        try:
            yield
        finally:
            _autograd._pop_saved_tensors_default_hooks()

    def unpack(self, kept: Any) -> Any:
        if self.forbids_derivatives:
            self.knock(BACKWARD)
        return kept

    def knock(self, name: str) -> None:
        """A forbidden function is called: by the student's code, or by others, or while the guard is down."""
        if self.is_up and not self.is_other():
            with self.up(False):
                self.report(name)
            raise ForbiddenCallError(f"`{name}` is forbidden in this exercise")

    def count(self, name: str) -> None:
        self.counts[name] += self.is_up and not self.is_other()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None):
        """A forbidden module is not imported by an answer; the import system asks this first."""
        if is_below(fullname, *self.patterns):
            self.knock(fullname)

    def _watch_operator(self, name: str, watch) -> None:
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, namespace), base)

        def kernel(keys, *args, **kwargs):
            watch(f"{namespace}::{base}")
            return getattr(packet, overload or "default").redispatch(keys & BEYOND, *args, **kwargs)

        if namespace not in self.libraries:
            self.libraries[namespace] = torch.library.Library(namespace, "IMPL")
        self.libraries[namespace].impl(rest, kernel, DOOR, with_keyset=True)


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def operators(patterns: tuple[str, ...]) -> list[str]:
    """The operators that the patterns with `::` name, but for those that only call others, whose doors come later."""
    wanted = tuple(pattern for pattern in patterns if "::" in pattern)
    return _operators_in((imports(), len(torch.ops.loaded_libraries)), wanted) if wanted else []


@functools.lru_cache(maxsize=64)  # torch makes the list of all names anew, which takes milliseconds
def _operators_in(_: Hashable, patterns: tuple[str, ...]) -> list[str]:
    """Those that match: looked for anew after an import, or a library with operators was loaded."""
    matches = re.compile("|".join(map(fnmatch.translate, patterns))).match
    found = [name for name in torch._C._dispatch_get_all_op_names() if matches(name.partition(".")[0])]
    return [
        name for name in found if not _has_kernel(name, "CompositeImplicitAutograd") and not _has_kernel(name, DOOR)
    ]


def dotted_of(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Those that are names of Python's and not of operators."""
    return tuple(pattern for pattern in patterns if "::" not in pattern)


def functions_of(dotted: tuple[str, ...]) -> frozenset[types.FunctionType]:
    """The `python_functions` of dotted names, looked for anew only where there are other modules that they may mean."""
    return _functions_in(_meant(imports(), dotted), dotted)


@functools.lru_cache(maxsize=64)  # each check asks, and thousands of modules are imported
def _meant(_: Hashable, dotted: tuple[str, ...]) -> frozenset[str]:
    modules = [name.rpartition(".")[0] for name in dotted]
    owners = {*modules, *(name.rpartition(".")[0] for name in modules)}
    return frozenset(name for name in list(sys.modules) if name in owners or is_below(name, *dotted))


@functools.lru_cache(maxsize=256)
def _functions_in(modules: frozenset[str], dotted: tuple[str, ...]) -> frozenset[types.FunctionType]:
    return frozenset(python_functions(dotted))


def python_functions(dotted: tuple[str, ...]) -> list[types.FunctionType]:
    """The functions that dotted names mean, in modules that are imported already."""
    found = [value for name in dotted for value in _at(name)]
    for module in [m for key, m in list(sys.modules.items()) if m is not None and is_below(key, *dotted)]:
        own = [v for v in vars(module).values() if _has_code(v) and is_below(str(v.__module__), *dotted)]
        # A class of enumerated values holds methods of `enum`.
        methods = [method for kind in own if isinstance(kind, type) for method in vars(kind).values()]
        found += own + [m for m in methods if _has_code(m) and is_below(str(m.__module__), *dotted)]
    plain = [inspect.unwrap(f) for f in found if _has_code(f)]
    return [f for f in plain if type(f) is types.FunctionType]


def _has_code(value) -> bool:
    """Looks at the type alone: some objects of torch's warn when they are asked for an attribute."""
    return issubclass(type(value), KINDS)


def _at(name: str) -> list:
    """What has this dotted name: a function of a module, or a method, with those of subclasses in its place."""
    owner, _, attribute = name.rpartition(".")
    if owner in sys.modules:
        return [vars(sys.modules[owner]).get(attribute)]  # to ask it for one may import more
    module, _, class_name = owner.rpartition(".")
    kinds = [found] if isinstance(found := getattr(sys.modules.get(module), class_name, None), type) else []
    for kind in kinds:
        kinds += kind.__subclasses__()
    return [vars(kind).get(attribute) for kind in kinds]


def look_for(patterns: tuple[str, ...]) -> None:
    """What a guard asks when it is told to forbid these patterns, asked before: the answers are kept."""
    functions_of(dotted_of(patterns))
    operators(patterns)


def unknown(patterns: tuple[str, ...]) -> list[str]:
    """The patterns that forbid nothing, for the author to mend."""
    for pattern in (pattern for pattern in patterns if "::" not in pattern):
        for module in (pattern, pattern.rpartition(".")[0], pattern.rpartition(".")[0].rpartition(".")[0]):
            with contextlib.suppress(ImportError, ValueError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a framework says of its own modules is no business of ours
                importlib.import_module(module)
    return [
        pattern for pattern in patterns if not operators((pattern,)) and not python_functions(dotted_of((pattern,)))
    ]


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
