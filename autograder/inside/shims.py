"""Python in front of functions of C's, where no door fits: each raises an audit event, and the sentry asks who calls.

A method of C's is replaced in the table of its own type, so no instance and no alias leads past the shim. A function is
replaced in every module that has it.
"""

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

import torch

from .doors import opaque

SHIM = "autograder.shim"  # the event
METHODS = {"torch._C._EngineBase.run_backward": (type(torch.autograd.Variable._execution_engine), "run_backward")}
FUNCTIONS = {  # which write anywhere in memory; which hand out the meter that a harness measures with
    "ctypes.memmove": (ctypes, "memmove"),
    "ctypes.memset": (ctypes, "memset"),
    **{
        f"torch._C.{name}": (torch._C, name)
        for name in (
            "_get_dispatch_stack_at",
            "_pop_torch_dispatch_stack",
            "_get_dispatch_mode",
            "_unset_dispatch_mode",
            "_set_dispatch_mode",
        )
        if hasattr(torch._C, name)
    },
}
ALWAYS = frozenset(FUNCTIONS)  # no answer calls these; the others are named by the exercises that forbid them
SHIMS = frozenset([*METHODS, *FUNCTIONS])


def in_front(name: str, function: Callable) -> Callable:
    """Return `function` with an event before it."""
    audit = sys.audit

    def call(*args: Any, **kwargs: Any) -> Any:
        audit(SHIM, name)
        return function(*args, **kwargs)

    return opaque(call)


def install() -> None:
    """Put the shims in their places, in a process that will run a student's code."""
    for name, (kind, method) in METHODS.items():
        table = gc.get_referents(kind.__dict__)[0]
        table[method] = in_front(name, table[method])
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    for name, (owner, attribute) in FUNCTIONS.items():
        function = getattr(owner, attribute)
        shim = in_front(name, function)
        for module in list(sys.modules.values()):
            for key, value in list(getattr(module, "__dict__", {}).items()):
                if value is function:
                    setattr(module, key, shim)
