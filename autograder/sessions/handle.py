"""An object of a student's class, as a check sees it: the object stays in the student's process."""

import operator
from collections.abc import Callable
from typing import Any

from autograder.show import an, type_name


class PlainValueError(TypeError):
    """An operator on a student's object gave the plain `value`.

    A formula of a check computes no further with it: that would be the grader's work, with lists that double or
    powers without end, and without the student's limits.
    """

    def __init__(self, value: Any):
        super().__init__(f"an operator gives {an(type_name(value))}")
        self.value = value


SHORT = 60  # characters of a call that is shown for the object that it made


class Handle:
    """An object of a student's class: attributes, methods and operators act on it where it lives.

    Arithmetic gives another such object, or raises PlainValueError. Comparisons are not forwarded: a student's `__eq__`
    does not count. Read a plain attribute and check that.
    """

    def __init__(self, peer: Any, number: int, type_name: str):
        self.__dict__.update(_peer=peer, _number=number, type_name=type_name, _made="")

    def _do(self, name: str, *args):
        return self._peer.session.timed(["operator", name], args, None, objects=True)

    def _computed(self, name: str, *operands):
        result = self._do(name, *operands)
        if type(result) is not Handle:
            raise PlainValueError(result)
        return result

    def __call__(self, *args, **kwargs):
        return self._peer.session.timed(["yours", self._number], args, kwargs, objects=True)

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return self._do("getattr", self, name)

    def __setattr__(self, name: str, value):
        self._do("setattr", self, name, value)

    def __len__(self):
        return operator.index(self._do("len", self))

    def __repr__(self):
        return self._made or f"<{self.type_name} object>"


def made_by(call: str, made: Any) -> None:
    """Let an object be shown by the call that made it, if that is short."""
    if type(made) is Handle and len(call) <= SHORT:
        made.__dict__["_made"] = call


def computed(formula: Callable[[], Any]) -> Any:
    """Return what a formula of a student's objects gives, or the first plain value that one of its operators gives."""
    try:
        return formula()
    except PlainValueError as error:
        return error.value


def _forward(name: str):
    return lambda self, *others: self._do(name, self, *others)


def _arithmetic(name: str):
    return lambda self, *others: self._computed(name, self, *others)


def _reflected(name: str):
    return lambda self, other: self._computed(name, other, self)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Handle, f"__{_name}__", _arithmetic(_name))
    setattr(Handle, f"__r{_name}__", _reflected(_name))
for _name in ("neg", "pos", "abs"):
    setattr(Handle, f"__{_name}__", _arithmetic(_name))
for _name in ("lt", "le", "gt", "ge", "getitem", "setitem"):
    setattr(Handle, f"__{_name}__", _forward(_name))
