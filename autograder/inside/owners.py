"""Whose code it is: an answer's, a library's, or the guard's own."""

import os
import sys
import sysconfig
import types
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from .location import OF_REFERENCE

OURS = tuple(
    f"{root}{os.sep}{name}{os.sep}"
    for root in {Path(__file__).parents[2], Path(__file__).resolve().parents[2]}
    for name in ("autograder", "hpcdl")
)
INSTALLED = tuple(
    {
        f"{folder(path)}{os.sep}"
        for path in (
            *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
            os.path.dirname(os.__file__),
        )
        for folder in (str, os.path.realpath)
    }
)
INSIDE = os.path.join(os.path.dirname(__file__), "")
LIBRARIES = (*OURS, *INSTALLED, "<frozen ", "<__array_function__", OF_REFERENCE)
CODES = ("__code__", "gi_code", "cr_code", "ag_code")


def is_library(code: Any) -> bool:
    return type(code) is CodeType and code.co_filename.startswith(LIBRARIES)


def is_of_judge(frame: FrameType | None) -> bool:
    """Whether an event comes from a judge's own work, without an answer's code between, such as a property."""
    while frame is not None and not frame.f_code.co_filename.startswith(INSIDE):
        if not is_library(frame.f_code):
            return False
        frame = frame.f_back
    return True


def is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(OURS)


def is_students(value: Any) -> bool:
    """Whether a function or class is the student's: by its code, or the code of its creator."""
    code = code_of(value)
    if code is not None:
        return not is_library(code)
    kind = value if issubclass(type(value), type) else type(value)
    name = type.__getattribute__(kind, "__module__")
    module = sys.modules.get(name) if type(name) is str else None
    names = ModuleType.__getattribute__(module, "__dict__") if issubclass(type(module), ModuleType) else {}
    file = names.get("__file__")
    return not (type(file) is str and file.startswith(LIBRARIES))


def is_of_reference(value: Any) -> bool:
    """Whether a function's or generator's code is the reference's, lent to an answer."""
    code = code_of(value)
    return type(code) is CodeType and code.co_filename == OF_REFERENCE


def code_of(value: Any) -> CodeType | None:
    """Return the code of a function, method or generator; an answer's own class may have any name and attributes."""
    while type(value) is MethodType:
        value = value.__func__
    name = CODED.get(type(value))
    return getattr(value, name) if name else None


CODED = dict(
    zip((FunctionType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), CODES, strict=True)
)
