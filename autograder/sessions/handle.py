"""An object of a student's class, as a check sees it: the object stays in the student's process."""

import operator
from typing import Any


class Handle:
    """An object of a student's class: attributes, methods and operators act on it where it lives.

    Comparisons are not forwarded: a student's `__eq__` does not count. Read a plain attribute and check that.
    """

    def __init__(self, peer: Any, number: int, type_name: str):
        self.__dict__.update(_peer=peer, _number=number, type_name=type_name)

    def _do(self, name: str, *args):
        return self._peer.session.timed(["operator", name], args, None, objects=True)

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
        return f"<{self.type_name} object>"


def _forward(name: str):
    return lambda self, *others: self._do(name, self, *others)


def _forward_reflected(name: str):
    return lambda self, other: self._do(name, other, self)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Handle, f"__{_name}__", _forward(_name))
    setattr(Handle, f"__r{_name}__", _forward_reflected(_name))
for _name in ("neg", "pos", "abs", "lt", "le", "gt", "ge", "getitem", "setitem"):
    setattr(Handle, f"__{_name}__", _forward(_name))
