"""Put shims before the C functions of packages that an exercise may forbid, when their modules are imported.

Python functions have doors, which reach every alias. C functions have none: an answer that kept one from an earlier
cell would call it unseen. So each is replaced before anything can fetch it.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import Any

import numpy

from .forbidden import finder as hidden
from .library import is_below
from .shims import shimmed

PACKAGES = ("scipy.ndimage", "scipy.optimize", "scipy.signal", "scipy.special", "pandas._libs.window")
FOLDERS = tuple(name.replace(".", os.sep) for name in PACKAGES)
KINDS = (types.BuiltinFunctionType, numpy.ufunc)
CYTHON = "cython_function_or_method"


def install() -> None:
    """Install the finder in a process that will run student code."""
    sys.meta_path.insert(0, hidden(Finder().find_spec))


def is_bypassed(path: object, frame: types.FrameType | None) -> bool:
    """Whether an extension module in `path` is loaded for `frame` without shims."""
    if type(path) is not str or not any(f"{os.sep}{folder}{os.sep}" in path for folder in FOLDERS):
        return False
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is None or (frame.f_code.co_filename, frame.f_code.co_name) != (__file__, "create_module")


class Finder(importlib.abc.MetaPathFinder):
    """Finds extension modules of `PACKAGES`; others are left to Python's finders."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None):
        if not is_below(fullname, *PACKAGES):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
            spec.loader = ShimLoader(spec.loader)
        return spec


class ShimLoader(importlib.abc.Loader):
    """Loads an extension module like `loader`, then puts shims before its functions."""

    def __init__(self, loader: importlib.machinery.ExtensionFileLoader):
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loader.exec_module(module)
        module.__loader__ = module.__spec__.loader = self.loader
        for name, value in list(vars(module).items()):
            if isinstance(value, KINDS) or type(value).__name__ == CYTHON:
                setattr(module, name, shimmed(f"{module.__name__}.{name}", value))
