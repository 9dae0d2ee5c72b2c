"""A `contextlib` of our own: an answer can replace the parts of Python's, and then no guard would go up.

It is Python's source, run once more; `hide` takes it out of reach in a worker.
"""

import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

from hpcdl.lazy import mark_contexts

if TYPE_CHECKING:
    import contextlib
else:

    def again(name: str) -> ModuleType:
        """Return another instance of a module of Python's, which no table holds."""
        spec = importlib.util.find_spec(name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    contextlib = again("contextlib")
    mark_contexts(contextlib)

__all__ = ["contextlib"]
