"""Tell a compiler's own use of libraries from an answer's: Numba and torch import SciPy and others for themselves."""

import os
import re
import sys
import types
from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder

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
