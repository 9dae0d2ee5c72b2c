"""Find the Python functions that dotted names refer to: a function, a method, or a module with all its functions."""

import functools
import inspect
import sys
import types

import numpy

from .library import is_below
from .once import KNOWN

KINDS = (type, types.FunctionType, functools._lru_cache_wrapper, type(numpy.sum))  # types with code to replace


def imported() -> list[tuple[str, types.ModuleType]]:
    """Return all imported modules with their names, also those that an answer took out of `sys.modules`."""
    known: list[tuple[str, types.ModuleType]] = []
    sys.audit(KNOWN, known)  # a worker's sentry answers
    now = [(name, module) for name, module in list(sys.modules.items()) if isinstance(module, types.ModuleType)]
    return [*known, *now]


def python_functions(dotted: tuple[str, ...]) -> list[types.FunctionType]:
    """Return the functions that dotted names refer to, in imported modules."""
    every = imported()
    found = [value for name in dotted for value in _at(name, every)]
    modules = {id(m): m for key, m in every if is_below(key, *dotted)}.values()
    values = {id(v): v for module in modules for v in vars(module).values() if _has_code(v)}  # many import the same
    own = [v for v in values.values() if is_below(str(v.__module__), *dotted)]
    # An enumeration class holds methods of `enum`.
    methods = [m for kind in own if isinstance(kind, type) for value in vars(kind).values() for m in _within(value)]
    found += own + [m for m in methods if _has_code(m) and is_below(str(m.__module__), *dotted)]
    plain = [inspect.unwrap(f) for value in found for f in _within(value) if _has_code(f)]
    return [f for f in plain if type(f) is types.FunctionType]


def _within(value) -> list:
    """Return the functions that a class holds in a static method, a class method or a property; else the value."""
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    return [value]


def _has_code(value) -> bool:
    """Whether a value has code, judged only by its type: some torch objects warn on attribute access."""
    return issubclass(type(value), KINDS)


def _at(name: str, every: list[tuple[str, types.ModuleType]]) -> list:
    """Return what has this dotted name: a module's function, or a method and its overrides in subclasses."""
    owner, _, attribute = name.rpartition(".")
    if found := [vars(module).get(attribute) for key, module in every if key == owner]:
        return found  # attribute access may import more
    module_name, _, class_name = owner.rpartition(".")
    classes = [vars(module).get(class_name) for key, module in every if key == module_name]
    kinds = list(dict.fromkeys(kind for kind in classes if isinstance(kind, type)))
    for kind in kinds:
        kinds += kind.__subclasses__()
    return [vars(kind).get(attribute) for kind in kinds]
