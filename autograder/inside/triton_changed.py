"""Find functions of Triton's that an answer has replaced: a kernel that calls them would run what is not Triton's."""

import functools
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from . import owners
from .doors import opaque

is_library = opaque(owners.is_library)  # an answer can reach this module
del owners

MODULES = ("triton.language.", "triton.runtime.interpreter.", "triton.runtime.jit.")
LEFT_OUT = "triton.language.extra."  # its functions are for cards


def changed() -> str:
    """Return the name of a function of Triton's that an answer has replaced, or an empty text."""
    kinds: dict[type, bool] = {}
    for name, module in list(sys.modules.items()):
        if f"{name}.".startswith(MODULES) and not f"{name}.".startswith(LEFT_OUT):
            for key, value in list(vars(module).items()):
                for inner, part in parts(value, name):
                    if is_foreign(part, kinds):
                        return f"{name}.{key}{inner}"
    return ""


def parts(value: Any, module: str) -> Iterator[tuple[str, Any]]:
    """Return a value of a module, and what a class of the module, or an object of such a class, has in it."""
    yield "", value
    kind = value if isinstance(value, type) else type(value)
    own = type.__getattribute__(kind, "__module__")
    if own == module if kind is value else str(own).startswith("triton."):
        for key, part in list(getattr(value, "__dict__", {}).items()):
            yield f".{key}", part


def is_foreign(value: Any, kinds: dict[type, bool]) -> bool:
    """Whether it is a function of an answer's, or wraps one, or an object of a class of an answer's."""
    kind = type(value)
    if kind is FunctionType:
        return is_answers(value) or any(is_answers(content(cell)) for cell in value.__closure__ or ())
    if kind in (staticmethod, classmethod):
        return is_foreign(value.__func__, kinds)
    if kind is property:
        return is_foreign(value.fget, kinds) or is_foreign(value.fset, kinds)
    if kind is functools.partial:
        return any(is_foreign(part, kinds) for part in (value.func, *value.args))
    if kind not in kinds:
        kinds[kind] = kind is not type and any(map(is_answers, vars(kind).values()))
    return kinds[kind]


def is_answers(function: Any) -> bool:
    """Whether it is a function, and its code an answer's; that of data classes and named tuples has no file."""
    if type(function) is not FunctionType:
        return False
    code = function.__code__
    is_generated = code.co_filename == "<string>" and code.co_name.startswith("_")
    return not (is_library(code) or is_generated)


def content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
