"""Tell a compiler's own use of a library from an answer's: Numba and torch import SciPy and others for themselves."""

import os
import re
import sys
import types

import torch

IMPORTS = re.compile(r"^<frozen importlib|/importlib/__init__\.py$|/autograder/inside/\w+\.py$")
PACKAGES = os.path.dirname(os.path.dirname(torch.__file__))
COMPILERS = tuple(f"{PACKAGES}/{name}/" for name in ("numba", "torch"))


def by_compiler(package: str) -> bool:
    """Return whether Numba or torch imports or calls `package`, or one of its modules, for its own use."""
    frame: types.FrameType | None = sys._getframe(2)
    own = f"{PACKAGES}/{package}/"
    while frame is not None and (IMPORTS.search(file := frame.f_code.co_filename) or file.startswith(own)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(COMPILERS)
