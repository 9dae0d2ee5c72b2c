"""A `contextlib` and an `os.path` of our own: an answer can replace the parts of Python's, and then no guard would go
up, or it would see other files than are opened.

They are Python's source, run once more; `hide` takes them out of reach in a worker.
"""

import importlib.util
import os
from types import ModuleType
from typing import TYPE_CHECKING

from hpcdl.lazy import mark_contexts

if TYPE_CHECKING:
    import contextlib
    from os import path
else:

    def again(name: str) -> ModuleType:
        """Return another instance of a module of Python's, which no table holds."""
        spec = importlib.util.find_spec(name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    contextlib = again("contextlib")
    mark_contexts(contextlib)
    path = again(os.path.__name__)
    path.os = ModuleType(os.__name__)
    vars(path.os).update(vars(os))

__all__ = ["contextlib", "path"]
