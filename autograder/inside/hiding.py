"""Hide the modules that guard a worker from the answer that runs there.

An answer finds no such module by `sys.modules` or by a package's attribute, and no module's names by a function's
globals: the methods of the guarding classes, which `object.__subclasses__` shows to everyone, become C callables that
show nothing. The guarding functions have builtins and modules of Python's for themselves, so an answer that replaces
`isinstance` or `os.path.realpath` changes nothing for them.
"""

import builtins
import sys
import types
from typing import Any

from autograder.boundary import own

from .doors import opaque
from .library import is_below
from .seal import freeze, harden

HIDDEN = (
    *(
        f"autograder.inside.{name}"
        for name in (
            "compiled", "compilers", "copies", "doors", "dotted", "forbidden", "hiding", "library", "modes", "once",
            "operators", "owners", "packages", "seal", "sentry", "shims", "socket_worker", "texts", "worker",
        )
    ),
    "autograder.boundary",
    "autograder.walls",
)  # fmt: skip


OWN = ("autograder", "__main__", "__mp_main__")  # modules that may hold a hidden one


def hide() -> None:
    """Hide the guarding modules in this process, and make their classes immutable, for good."""
    modules = {name: module for name, module in list(sys.modules.items()) if is_below(name, *HIDDEN)}
    copies: dict[int, Any] = {}  # id -> what takes a value's place among the names of hidden modules
    for name, module in modules.items():
        copies |= _renew(name, module)
    for value in list(vars(own.contextlib).values()):  # `object.__subclasses__` shows these to everyone, too
        if isinstance(value, type) and value.__module__ == own.contextlib.__name__:
            cover(value)
            freeze(value)
    kept: dict[int, types.ModuleType] = {}
    for module in modules.values():
        for key, value in list(vars(module).items()):
            if id(value) in copies:
                vars(module)[key] = copies[id(value)]
            elif isinstance(value, types.ModuleType):
                vars(module)[key] = own_copy(value, kept)
    harden()
    take_out(modules)


def _renew(name: str, module: types.ModuleType) -> dict[int, types.FunctionType]:
    """Give a module builtins of its own, and cover its classes; return copies of its functions by the old ones' id."""
    names = vars(module)
    names["__builtins__"] = dict(vars(builtins))
    for value in list(names.values()):
        if isinstance(value, type) and value.__module__ == name:
            cover(value)
    functions = [value for value in names.values() if type(value) is types.FunctionType]
    return {id(value): renewed(value) for value in functions if value.__globals__ is names}


def renewed(function: types.FunctionType) -> types.FunctionType:
    """Return a function that has its module's present builtins."""
    own = (function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy = types.FunctionType(*own)
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    vars(copy).update(vars(function))
    return copy


def cover(kind: type) -> None:
    """Let a class show no functions."""
    for key, part in list(vars(kind).items()):
        if (covered := _covered(part)) is not part:
            setattr(kind, key, covered)


def _covered(part: Any) -> Any:
    if type(part) is types.FunctionType:
        return opaque(renewed(part))
    if isinstance(part, staticmethod | classmethod):
        return type(part)(_covered(part.__func__))
    if type(part) is property:
        return property(*map(_covered, (part.fget, part.fset, part.fdel)))
    if type(part) is dict:  # the verbs of a worker
        return {key: _covered(value) for key, value in part.items()}
    return part


def own_copy(module: types.ModuleType, known: dict[int, types.ModuleType]) -> types.ModuleType:
    """Return a copy of a module of Python's and of those that it holds; the module itself if it is another's.

    An answer's names need the real `builtins`.
    """
    if module is builtins or module.__name__.partition(".")[0] not in sys.stdlib_module_names:
        return module
    if id(module) not in known:
        copy = known[id(module)] = types.ModuleType(module.__name__)
        vars(copy).update(vars(module))
        for key, value in list(vars(copy).items()):
            if isinstance(value, types.ModuleType):
                setattr(copy, key, own_copy(value, known))
    return known[id(module)]


def take_out(modules: dict[str, types.ModuleType]) -> None:
    """Remove the modules from `sys.modules`, and from the names of all modules that an answer can find."""
    for name in modules:
        del sys.modules[name]
    hidden = {id(module) for module in modules.values()}
    for name, other in list(sys.modules.items()):
        for key, value in list(vars(other).items()) if is_below(name, *OWN) else ():
            if id(value) in hidden:
                delattr(other, key)
