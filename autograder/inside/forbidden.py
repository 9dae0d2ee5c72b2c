"""Calls that an answer may not make: torch's operators at the door behind which they all run, and Python's by name.

    lab.exercise("conv_direct", ..., forbid=(*CONVOLUTION, "hpcdl.conv"), instead="Write it with loops and sums.")

A pattern with `::` names operators of torch (`aten::convolution`). Kernels of ours stand in the dispatcher before
torch's own, so an alias, a module, `torch.ops`, autograd and another thread all come to the same door, and operators
that are allowed lose no time. A dotted name is a Python function, or a module with all its functions and the modules
below it: the code inside the function is replaced, so an alias does not help there either.

What this proves: a call that was denied was made. It is told to the grader at once, and cannot be taken back. What it
does not prove: that there was none. It runs in the student's process; code that takes the dispatcher apart, loads a
module's source anew, or computes in NumPy or C, gets past it. So a person looks at what is flagged, and at the code.
"""

import contextlib
import fnmatch
import importlib
import importlib.abc
import inspect
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey

CONVOLUTION = ("*::*conv[!e]*",)  # every operator with convolution in its name, also mkldnn's; not `_convert_...`
FOURIER = ("aten::_fft_*",)

# Above the kernels of each device and below autograd. Operators that compute have no kernel of their own here.
DOOR = "BackendSelect"
BEYOND = torch._C._dispatch_keyset_full_after(DispatchKey.BackendSelect)
doors: dict[str, object] = {}  # name of a Python function -> what its code calls now


class ForbiddenCallError(BaseException):
    """Raised in an answer in place of a call that the exercise forbids; no `except Exception` hides it."""


class Guard(importlib.abc.MetaPathFinder):
    """Denies the calls of `patterns` while it is up: `report(name)` is told, and the caller gets the error.

    It can count calls of operators, too: of matrix products, say, where an exercise is about their number.
    """

    def __init__(self, report: Callable):
        self.report, self.is_up = report, False
        self.patterns: tuple[str, ...] = ()
        self.counted: tuple[str, ...] = ()
        self.counts: Counter[str] = Counter()  # calls of the operators that are counted, not denied
        self.libraries: dict[str, torch.library.Library] = {}
        self.barred: dict[str, tuple[types.FunctionType, types.CodeType]] = {}

    def forbid(self, patterns: tuple[str, ...], counted: tuple[str, ...] = ()) -> None:
        """Forbid the calls of `patterns` from now on, and no others; count those of the operators `counted`."""
        if (patterns, counted) != (self.patterns, self.counted):
            self._open()
            self.patterns, self.counted = patterns, counted
            denied = operators(patterns)
            for name in denied:
                self._watch_operator(name, self.knock)
            for name in set(operators(counted)) - set(denied):
                self._watch_operator(name, self.count)
            if patterns:
                sys.meta_path.insert(0, self)
        for function in python_functions(patterns):  # also of modules that were imported since
            self._bar_function(function)

    @contextlib.contextmanager
    def up(self, is_up: bool = True):
        """The student's code runs in the block; `up(False)`: a function of the check that it called back."""
        before, self.is_up = self.is_up, is_up
        try:
            yield
        finally:
            self.is_up = before

    def knock(self, name: str) -> None:
        """A forbidden function is called: by the student's code, or by others while the guard is down."""
        if self.is_up:
            with self.up(False):
                self.report(name)
            raise ForbiddenCallError(f"`{name}` is forbidden in this exercise")

    def count(self, name: str) -> None:
        self.counts[name] += self.is_up

    def find_spec(self, fullname: str, path: Any = None, target: Any = None):
        """A forbidden module is not imported by an answer; the import system asks this first."""
        if any(_is_below(fullname, pattern) for pattern in self.patterns):
            self.knock(fullname)

    def _open(self) -> None:
        self.libraries.clear()  # torch takes the kernels of a library back when it is gone
        for name, (function, code) in self.barred.items():
            function.__code__ = code
            del doors[name]
        self.barred.clear()
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

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

    def _bar_function(self, function: types.FunctionType) -> None:
        name = f"{function.__module__}.{function.__qualname__}"
        if name in doors:
            return
        original = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
        original.__kwdefaults__ = function.__kwdefaults__

        def door(*args, **kwargs):
            self.knock(name)
            return original(*args, **kwargs)

        doors[name], self.barred[name] = door, (function, function.__code__)
        # The code of a function that closes over nothing must not either: it finds its door by name.
        call = f"lambda *args, **kwargs: __import__({__name__!r}, fromlist='_').doors[{name!r}](*args, **kwargs)"
        function.__code__ = eval(call).__code__


def operators(patterns: tuple[str, ...]) -> list[str]:
    """The operators that the patterns with `::` name, but for those that only call others, whose doors come later."""
    wanted = [pattern for pattern in patterns if "::" in pattern]
    names = torch._C._dispatch_get_all_op_names() if wanted else []
    found = [name for name in names if any(fnmatch.fnmatchcase(name.partition(".")[0], p) for p in wanted)]
    return [
        name for name in found if not _has_kernel(name, "CompositeImplicitAutograd") and not _has_kernel(name, DOOR)
    ]


def python_functions(patterns: tuple[str, ...]) -> list[types.FunctionType]:
    """The functions that dotted names mean, in modules that are imported already."""
    found = []
    for pattern in (pattern for pattern in patterns if "::" not in pattern):
        module, _, name = pattern.rpartition(".")
        found.append(getattr(sys.modules.get(module), name, None))
        for imported in [m for key, m in list(sys.modules.items()) if m is not None and _is_below(key, pattern)]:
            own = [v for v in vars(imported).values() if _is_below(str(getattr(v, "__module__", "")), pattern)]
            found += own + [method for kind in own if isinstance(kind, type) for method in vars(kind).values()]
    plain = [inspect.unwrap(f) for f in found if callable(f) and not hasattr(f, "py_func")]  # numba compiles its code
    return [f for f in plain if type(f) is types.FunctionType and not f.__code__.co_freevars]


def unknown(patterns: tuple[str, ...]) -> list[str]:
    """The patterns that forbid nothing, for the author to mend."""
    for pattern in (pattern for pattern in patterns if "::" not in pattern):
        for module in (pattern, pattern.rpartition(".")[0]):
            with contextlib.suppress(ImportError, ValueError):
                importlib.import_module(module)
    return [pattern for pattern in patterns if not operators((pattern,)) and not python_functions((pattern,))]


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def _is_below(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}.")
