"""Seal what harnesses depend on before student code runs: make classes immutable, and detect other changes.

A class of the machinery becomes immutable, like C classes. The content of modules and registries is compared with a
copy; a harness itself runs with private names, which nothing outside it holds.
"""

import builtins
import ctypes
import math
import operator
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import torch

MACHINERY = (  # packages whose modules and classes answers must not change
    "autograder",
    "hpcdl.comm",
    "hpcdl.memory",
    "hpcdl.nn.awkward",
    "hpcdl.nn.stage",
    "hpcdl.training.process_group",
)
PILLARS: tuple[Any, ...] = (  # other objects that a harness calls
    builtins, math, operator, time, weakref, torch, torch.nn.functional, torch.Tensor, torch.nn.Module,
    torch.nn.Parameter, torch.autograd.Function, torch.utils._python_dispatch.TorchDispatchMode, sys,
    torch.UntypedStorage,
)  # fmt: skip
KINDS = (types.FunctionType, types.BuiltinFunctionType, type, types.MethodDescriptorType, types.GetSetDescriptorType,
         property, staticmethod, classmethod)  # fmt: skip
LIVELY = ("_", "input", "displayhook", "excepthook", "resize_")  # names that Python, a worker or a meter rebinds

OF_TORCH = torch.__file__.removesuffix("__init__.py")  # the folder of its code; student code never has a file there
IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
FLAGS_AT = 168  # offset of a type's flags, on 64 bits; checked before writing


def below(name: str, wholes: tuple[str, ...] = MACHINERY) -> bool:
    return f"{name}.".startswith(tuple(f"{whole}." for whole in wholes))


def modules() -> Iterator[types.ModuleType]:
    """Return the imported modules of the machinery."""
    for name, module in list(sys.modules.items()):
        if module is not None and below(name):
            yield module


def harden() -> None:
    """Make the machinery's classes immutable, except networks, since torch gives them new classes."""
    for module in modules():
        for value in list(vars(module).values()):
            if (
                isinstance(value, type)
                and value.__module__ == module.__name__
                and not issubclass(value, torch.nn.Module)
            ):
                freeze(value)


def freeze(kind: type) -> None:
    """Make a class immutable."""
    flags = ctypes.c_ulong.from_address(id(kind) + FLAGS_AT)
    if flags.value == kind.__flags__:
        flags.value |= IMMUTABLE


def private(function: Callable, known: dict[int, dict] | None = None) -> Callable:
    """Return `function` with private globals and builtins, and likewise the functions of its module that it calls."""
    known = {} if known is None else known
    if type(function) is not types.FunctionType or not below(function.__module__, ("autograder.inside",)):
        return function
    names = known.get(id(function.__globals__))
    if names is None:
        names = known[id(function.__globals__)] = dict(function.__globals__)
        names.update({name: private(value, known) for name, value in names.items()})
        names["__builtins__"] = dict(vars(builtins))
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def take() -> Callable[[], list[str]]:
    """Return a function that names later changes in the machinery: modules, registries, pillars."""
    kept: list[tuple[str, Mapping, dict]] = []
    imported = {module.__name__: module for module in modules()}
    for name, module in imported.items():
        kept.append((name, vars(module), _lasting(vars(module))))
        for key, value in list(vars(module).items()):
            if type(value) is dict and key.isupper():
                kept.append((f"{name}.{key}", value, dict(value)))
    kept += [(pillar.__name__, vars(pillar), _lasting(vars(pillar))) for pillar in PILLARS]
    shadows = [(kind.__name__, vars(kind), _inherited(kind)) for kind in PILLARS if isinstance(kind, type)]
    cells = [cell for module in imported.values() for cell in _cells(module)]
    loaded = sys.modules

    def changed() -> list[str]:
        moved = [name for name, cell, value in cells if cell.cell_contents is not value]
        found = chain(_replaced(kept), _shadowed(shadows), _exchanged(imported, loaded), moved)
        return list(islice(found, 1))

    return changed


def _replaced(kept: Iterable[tuple[str, Mapping, dict]]) -> Iterator[str]:
    """Yield the names that no longer have the value they had."""
    for name, where, lasting in kept:
        now = where if type(where) is dict else dict(where)
        for key, value in lasting.items():
            if key not in now or (now[key] is not value and not _by_torch(name, now[key])):
                yield f"{name}.{key}"


def _shadowed(shadows: Iterable[tuple[str, Mapping, frozenset[str]]]) -> Iterator[str]:
    """Yield the inherited methods that a class has of its own by now."""
    for name, where, inherited in shadows:
        for key in inherited & where.keys():
            if not _by_torch("torch", where[key]):
                yield f"{name}.{key}"


def _exchanged(imported: dict[str, types.ModuleType], loaded: dict[str, types.ModuleType]) -> Iterator[str]:
    """Yield the modules that an import would no longer find."""
    for name, module in imported.items():
        if sys.modules is not loaded or name not in loaded or loaded[name] is not module:
            yield f"sys.modules[{name!r}]"


def _by_torch(name: str, value: Any) -> bool:
    """Whether torch itself has put `value` there: its compiler wraps torch functions when it is imported."""
    code = value.__code__ if type(value) is types.FunctionType else None
    return name.partition(".")[0] == "torch" and code is not None and code.co_filename.startswith(OF_TORCH)


def _lasting(where: Mapping) -> dict:
    return {key: value for key, value in where.items() if isinstance(value, KINDS) and key not in LIVELY}


def _inherited(kind: type) -> frozenset[str]:
    """Return the names of methods that a class has from others: one of its own would come first."""
    return frozenset(name for base in kind.__mro__[1:] for name in _lasting(vars(base))) - vars(kind).keys()


def _cells(module: types.ModuleType) -> Iterator[tuple[str, types.CellType, Any]]:
    for name, value in list(vars(module).items()):
        if type(value) is types.FunctionType and value.__module__ == module.__name__:
            for cell in value.__closure__ or ():
                yield f"{module.__name__}.{name}", cell, cell.cell_contents
