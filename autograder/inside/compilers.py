"""Tell a compiler's own use of libraries from an answer's: Numba and torch import SciPy and others for themselves."""

import os
import re
import sys
import types
from functools import cache
from importlib.machinery import PathFinder

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
