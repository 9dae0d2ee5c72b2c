"""What is imported when it is first used, before, or not at all; and whether an import goes on."""

import importlib
import sys
from collections.abc import Callable
from types import FrameType


def exports(package: str, homes: dict[str, str]) -> tuple[list[str], Callable, Callable]:
    """`__all__`, `__getattr__` and `__dir__` of `package`, of whose names `homes` says in which module each is."""
    names = sorted(homes)

    def find(name: str):
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(names)}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return names, find, lambda: names


COMPILER = "torch._dynamo"


def import_compiler() -> None:
    """Import torch's compiler, as torch's optimizers do when the first of them is made: it takes seconds.

    So it is done before a clock runs, which could stop it halfway, and before several threads ask for it, of which one
    would find it half imported.
    """
    importlib.import_module(COMPILER)


SLOW = "rfc3987_syntax"


def leave_out_slow() -> None:
    """For a program of our own: let jsonschema do without a package whose import takes longer than all others.

    Where it is installed (as it is with Jupyter's server), jsonschema, and so nbformat, imports it to check addresses
    by RFC 3987, a format that no schema of theirs has; to build its grammar takes 1.3 s. To jsonschema it is optional.
    """
    sys.modules.setdefault(SLOW, None)  # type: ignore[arg-type]  # None: Python says that it is not installed


IMPORTER = "<frozen importlib._bootstrap>"


def is_importing(frame: FrameType | None) -> bool:
    """Whether `frame` stands in an import: an exception raised there leaves the module half made, for good.

    Not only an `import` of the program's own: the first `y.backward(dy)` makes torch import sympy.
    """
    while frame is not None and frame.f_code.co_filename != IMPORTER:
        frame = frame.f_back
    return frame is not None
