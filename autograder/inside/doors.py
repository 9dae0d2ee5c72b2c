"""Doors: replace the code inside a Python function, so that no alias bypasses it.

A later copy of the function, `types.FunctionType(f.__code__, ...)`, also contains the door. An entry's code holds a C
callable that shows nothing of its door: the code does not lead to the function behind it.
"""

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

Knock = Callable[[tuple], None]  # receives a call's arguments; its exception reaches the caller
_in_c: Any = functools._lru_cache_wrapper


def _behind(*args, **kwargs):
    """Stand for a function that is not shown."""


_behind = types.FunctionType(_behind.__code__, {"__builtins__": {}})  # which shows no names of ours, either


def _opaque(function: Callable) -> Callable:
    """Return a C callable that calls `function` and exposes nothing of it: no closure, code or globals."""
    shown = _in_c(function, 0, False, None)
    shown.__wrapped__ = _behind  # torch's compiler and others that unwrap it find this
    return shown


opaque: Callable[[Callable], Callable] = _opaque(_opaque)  # modules that an answer can reach hold it


def unheard(args: tuple) -> None:
    """Hear a knock while no check listens."""


class Door:
    """Replaces a function: knocks, then runs the function's own code.

    A door keeps no check's listener once it is open, and an entry only if it lasts as long as the process: Python's
    garbage collector does not look into code, so that a cycle through an entry would keep a check's guard, and all that
    the student's cells hold, forever.
    """

    def __init__(self, function: types.FunctionType):
        own = (function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        self.original = types.FunctionType(*own)
        self.knock: Knock = unheard
        self.lasting: Knock = unheard  # what hears it when no check has barred it
        self.kept: types.CodeType | None = None  # an entry
        self.shown = opaque(self.called)  # an entry calls this
        _doors[self.shown] = self

    def entry(self) -> types.CodeType:
        """Return the code of an entry: of the function's kind, with the same number of closure cells."""
        own = self.original.__code__
        template = ENTRIES[own.co_flags & KIND if OF_ITS_KIND else 0].__code__
        return template.replace(
            co_consts=tuple(self.shown if const == HERE else const for const in template.co_consts),
            co_freevars=own.co_freevars,
            co_name=own.co_name,
            co_flags=template.co_flags | own.co_flags & inspect.CO_ITERABLE_COROUTINE,
        )

    def called(self, *args: Any, **kwargs: Any) -> Any:
        self.knock(args)
        return self.original(*args, **kwargs)


# Each check bars and opens hundreds of functions, so doors are cached. A weak dictionary would hang itself on its keys.
_made: dict[types.FunctionType, Door] = {}  # of functions of modules
_doors: dict[Callable, Door] = {}  # by what their entries call
_owners: dict[int, types.FunctionType] = {}  # by the identity of their code; a door keeps that code


def kept(function: types.FunctionType) -> Door | None:
    """Return the door of a module's function, which lasts as long as the process."""
    return _made.get(function)


def owner_of(code: types.CodeType) -> types.FunctionType | None:
    """Return the module's function that has had this code before its door, if the code is still the same object."""
    return _owners.get(id(code))


class Doors:
    """Functions that knock before they run, until `open_all`."""

    def __init__(self):
        self.barred: dict[types.FunctionType, types.CodeType] = {}
        self.doors: list[Door] = []  # of these
        self.made: dict[types.FunctionType, Door] = {}  # of other functions, such as a student's: they end with this

    def __del__(self):  # an answer would find a weak reference's finalizer
        for door in self.made.values():
            _doors.pop(door.shown, None)

    def bar(self, function: types.FunctionType, knock: Knock) -> None:
        """Let each call of `function` knock first; do nothing if it already has a door."""
        if function in self.barred or is_door(own := function.__code__):
            return
        door = self.prepare(function)
        door.knock = knock
        self.doors.append(door)
        door.original.__defaults__, door.original.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        self.barred[function] = own
        function.__code__ = door.kept or door.entry()

    def prepare(self, function: types.FunctionType) -> Door:
        """Return a door for a function that has none yet."""
        door = _made.get(function) or self.made.get(function)
        if door is None or door.original.__code__ is not function.__code__:
            made = self._cache(function)
            door = made[function] = Door(function)
            if made is _made:
                door.kept, _owners[id(function.__code__)] = door.entry(), function
        return door

    def open(self, function: types.FunctionType) -> None:
        """Take the door from one function."""
        if own := self.barred.pop(function, None):
            function.__code__ = own

    def open_all(self) -> None:
        for function, code in self.barred.items():
            function.__code__ = code
        for door in self.doors:
            door.knock = door.lasting
        self.barred.clear()
        self.doors.clear()

    def _cache(self, function: types.FunctionType) -> dict[types.FunctionType, Door]:
        module = sys.modules.get(function.__module__)
        is_of_module = module is not None and module.__spec__ is not None and vars(module) is function.__globals__
        return _made if is_of_module else self.made


def is_door(code: types.CodeType) -> bool:
    return code.co_filename == __file__ and _door_of(code) is not None


def behind(code: types.CodeType) -> types.FunctionType:
    """Return the function behind the door that is in `code`."""
    door = _door_of(code)
    assert door is not None
    return door.original


def _door_of(code: types.CodeType) -> Door | None:
    return next((_doors[const] for const in code.co_consts if type(const) is _in_c and const in _doors), None)


# Python 3.13 requires a function's new code to be of the same kind: plain, generator, coroutine or async generator. A
# plain entry is stricter: it knocks at the call, the others when their result is first used.

OF_ITS_KIND = sys.version_info >= (3, 13)
HERE = "its place among the constants of the code, which holds the door itself"
KIND = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _entry(*args, **kwargs):
    door: Any = "its place among the constants of the code, which holds the door itself"
    return door(*args, **kwargs)


def _generator(*args, **kwargs):
    door: Any = "its place among the constants of the code, which holds the door itself"
    return (yield from door(*args, **kwargs))


async def _coroutine(*args, **kwargs):
    door: Any = "its place among the constants of the code, which holds the door itself"
    return await door(*args, **kwargs)


async def _async_generator(*args, **kwargs):
    door: Any = "its place among the constants of the code, which holds the door itself"
    async for value in door(*args, **kwargs):
        yield value


ENTRIES = {entry.__code__.co_flags & KIND: entry for entry in (_entry, _generator, _coroutine, _async_generator)}
