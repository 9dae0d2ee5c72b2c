"""Tell a compiler's own use of libraries from an answer's: Numba and torch import SciPy and others for themselves.

And tell which functions an answer's compiled code uses: Numba has its own form of many of NumPy's, behind no door.
"""

import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from typing import Any
from weakref import WeakKeyDictionary

from .doors import behind, is_door, opaque

IMPORTS = re.compile(r"^<frozen importlib|/importlib/__init__\.py$|/autograder/inside/\w+\.py$")


@cache
def folders(*packages: str) -> tuple[str, ...]:
    """Return the beginnings of file names of packages, such as "torch" or "torch/jit"; none of absent ones."""
    found = []
    for name in packages:
        top, *inner = name.split("/")
        spec = PathFinder.find_spec(top)  # our own finders would be asked by `importlib.util.find_spec`
        found += [os.path.join(place, *inner, "") for place in (spec and spec.submodule_search_locations) or ()]
    return tuple(found)


USERS, READERS = folders("numba", "torch"), folders("numba", "triton", "torch/jit")  # of packages; of functions' text
FAKES = folders("torch/_subclasses")  # tensors without numbers, with which torch finds shapes


def by_compiler(package: str) -> bool:
    """Return whether Numba or torch imports or calls `package`, or one of its modules, for its own use."""
    frame: types.FrameType | None = sys._getframe(2)
    own = folders(package)
    while frame is not None and (IMPORTS.search(file := frame.f_code.co_filename) or file.startswith(own)):
        if file.startswith(FAKES):
            return True
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(USERS)


def see_behind_doors() -> None:
    """Let Numba compile the original code of functions that have a door."""
    from numba.core.bytecode import FunctionIdentity

    find = FunctionIdentity.from_function.__func__  # type: ignore[attr-defined]
    if type(find) is types.FunctionType:  # ours is in C
        setattr(FunctionIdentity, "from_function", classmethod(opaque(_identity_behind(find))))  # noqa: B010


def _identity_behind(find: Callable) -> Callable:
    """Return Numba's way to the identity of a function, changed for functions that have a door."""

    def from_function(cls, function):
        if type(function) is types.FunctionType and is_door(function.__code__):
            function = behind(function.__code__)
        return find(cls, function)

    return from_function


_used: WeakKeyDictionary[Any, tuple[int, frozenset[str]]] = WeakKeyDictionary()  # and how often each was compiled


def used_by(compiled: Any) -> frozenset[str]:
    """Return the names of a function that Numba compiles, of all that it uses, and of what those use."""
    times, names = _used.get(compiled, (-1, frozenset()))
    if times != len(compiled.overloads):
        names = frozenset(_names_in(compiled, set()))
        _used[compiled] = len(compiled.overloads), names
    return names


def _names_in(compiled: Any, seen: set[int]) -> Iterator[str]:
    if id(compiled) in seen:
        return
    seen.add(id(compiled))
    yield name_of(compiled.py_func)
    for made in list(compiled.overloads.values()):
        for kind in list(getattr(made.type_annotation, "typemap", {}).values()):
            if (inner := getattr(kind, "dispatcher", None)) is not None:
                yield from _names_in(inner, seen)
            elif callable(function := getattr(kind, "typing_key", None)):
                yield name_of(function)


def name_of(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
