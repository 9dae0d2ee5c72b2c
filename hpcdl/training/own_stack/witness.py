"""Record what really ran on this rank: every Python function and every torch operator.

The interpreter's profile hook sees functions, and torch's dispatch mode sees operators. Torch's autograd is off
meanwhile (`torch.inference_mode`), so no gradient can come from it.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hpcdl.comm import Communicator

IN_C = "<in C>"  # instead of a file, for functions without one


class Function(NamedTuple):
    """A function that ran, by its source location."""

    file: str
    line: int
    name: str


class Execution(NamedTuple):
    """The functions that ran on a rank, how often each, and how often each operator ("aten::mm")."""

    functions: dict[Function, int]
    operators: dict[str, int]


class _Operators(TorchDispatchMode):
    def __init__(self, counts: dict[str, int]):
        super().__init__()
        self.counts = counts

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler at the first operation, which takes seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        self.counts[name] = self.counts.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


def witnessed(comm: Communicator, f: Callable, *args: Any) -> tuple[Any, Execution]:
    """Return the result of `f(comm, *args)`, and what ran for it in this thread."""
    calls: dict[Any, int] = {}
    functions: dict[Function, int] = {}
    operators: dict[str, int] = {}

    def called(frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            calls[frame.f_code] = calls.get(frame.f_code, 0) + 1
        elif event == "c_call" and "educe" in function.__name__:  # MPI's Allreduce, Reduce_scatter, ...
            key = Function(IN_C, 0, function.__name__)
            functions[key] = functions.get(key, 0) + 1

    before = sys.getprofile()
    with torch.inference_mode(), _Operators(operators):
        sys.setprofile(called)
        try:
            value = f(comm, *args)
        finally:
            sys.setprofile(before)
    for code, count in calls.items():
        key = Function(code.co_filename, code.co_firstlineno, code.co_qualname)
        functions[key] = functions.get(key, 0) + count
    return value, Execution(functions, operators)
