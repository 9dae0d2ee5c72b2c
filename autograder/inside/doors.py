"""Doors before Python's functions: the code inside a function is replaced, so no alias leads past it.

A copy of the function that is made afterwards, `types.FunctionType(f.__code__, ...)`, has the door in it as well.
"""

import types
from collections.abc import Callable
from typing import Any

Knock = Callable[[tuple], None]  # is told the arguments of a call; what it raises, the caller gets


class Doors:
    """Functions that knock before they run, until `open_all`."""

    def __init__(self):
        self.barred: dict[types.FunctionType, types.CodeType] = {}

    def bar(self, function: types.FunctionType, knock: Knock) -> None:
        """Let each call of `function` knock first; nothing where it has a door already."""
        if is_door(function.__code__):
            return
        own = (function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        original = types.FunctionType(*own)
        original.__kwdefaults__ = function.__kwdefaults__

        def door(*args, **kwargs):
            knock(args)
            return original(*args, **kwargs)

        self.barred[function] = function.__code__
        # A function keeps its cells, so its new code must name as many.
        function.__code__ = _entry.__code__.replace(
            co_consts=(None, door), co_freevars=function.__code__.co_freevars, co_name=function.__name__
        )

    def open_all(self) -> None:
        for function, code in self.barred.items():
            function.__code__ = code
        self.barred.clear()


def is_door(code: types.CodeType) -> bool:
    return code.co_filename == __file__ and code.co_code == _entry.__code__.co_code


def _entry(*args, **kwargs):
    door: Any = "its place among the constants of the code, which holds the door itself"
    return door(*args, **kwargs)
