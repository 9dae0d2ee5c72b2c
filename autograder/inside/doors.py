"""Doors before Python's functions: the code inside a function is replaced, so no alias leads past it.

A copy of the function that is made afterwards, `types.FunctionType(f.__code__, ...)`, has the door in it as well.
"""

import types
import weakref
from collections.abc import Callable
from typing import Any

Knock = Callable[[tuple], None]  # is told the arguments of a call; what it raises, the caller gets


class Door:
    """Stands in a function's place: knocks, and then runs the function's own code."""

    def __init__(self, function: types.FunctionType, knock: Knock):
        own = (function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        self.original = types.FunctionType(*own)
        self.knock = knock
        # A function keeps its cells, so its new code must name as many.
        self.entry = _entry.__code__.replace(
            co_consts=(None, self), co_freevars=function.__code__.co_freevars, co_name=function.__name__
        )

    def __call__(self, *args, **kwargs):
        self.knock(args)
        return self.original(*args, **kwargs)


# Each check bars hundreds of functions and opens them again, so their doors are kept.
_made: weakref.WeakKeyDictionary[types.FunctionType, Door] = weakref.WeakKeyDictionary()


class Doors:
    """Functions that knock before they run, until `open_all`."""

    def __init__(self):
        self.barred: dict[types.FunctionType, types.CodeType] = {}

    def bar(self, function: types.FunctionType, knock: Knock) -> None:
        """Let each call of `function` knock first; nothing where it has a door already."""
        own = function.__code__
        if is_door(own):
            return
        door = _made.get(function)
        if door is None or door.original.__code__ is not own:
            door = _made[function] = Door(function, knock)
        door.knock = knock
        door.original.__defaults__, door.original.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        self.barred[function] = own
        function.__code__ = door.entry

    def open_all(self) -> None:
        for function, code in self.barred.items():
            function.__code__ = code
        self.barred.clear()


def is_door(code: types.CodeType) -> bool:
    return code.co_filename == __file__ and code.co_code == _entry.__code__.co_code


def _entry(*args, **kwargs):
    door: Any = "its place among the constants of the code, which holds the door itself"
    return door(*args, **kwargs)
