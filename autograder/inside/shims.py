"""Python shims before C functions, which cannot have a door: each raises an audit event, and the sentry checks the
caller.

Each function is replaced in every module that has it.
"""

import _signal
import _thread
import ctypes
import re
import signal
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy
import torch
from numpy._core import multiarray

from autograder.boundary import limits
from autograder.boundary.own import contextlib

from .doors import opaque

SHIM = "autograder.shim"  # the event
C: Any = torch._C
FUNCTIONS: dict[str, tuple[Any, str]] = {  # name -> the C module, and the function's name there
    "ctypes.memmove": (ctypes, "memmove"),  # writes anywhere in memory
    "ctypes.memset": (ctypes, "memset"),
    "torch._C._get_dispatch_stack_at": (C, "_get_dispatch_stack_at"),  # gives access to the meter that a harness reads
    "torch._C._pop_torch_dispatch_stack": (C, "_pop_torch_dispatch_stack"),
    "torch._C._get_dispatch_mode": (C, "_get_dispatch_mode"),
    "torch._C._DisableTorchDispatch": (C, "_DisableTorchDispatch"),  # without modes there is no meter
    "torch._C._unset_dispatch_mode": (C, "_unset_dispatch_mode"),
    "torch._C._set_dispatch_mode": (C, "_set_dispatch_mode"),
    **{  # these turn off what sees a backward pass
        f"torch._C._autograd._{name}": (C._autograd, f"_{name}")
        for name in (
            "push_saved_tensors_default_hooks",
            "pop_saved_tensors_default_hooks",
            "saved_tensors_hooks_disable",
            "saved_tensors_hooks_enable",
            "saved_tensors_hooks_set_tracing",
        )
    },
}
# Ways past a kernel of ours in the dispatcher: they hand out or call other kernels, register one, or switch keys off.
PAST = re.compile("DispatchKeyGuard$|^_AutoDispatchBelow|^_dispatch_(library$|call_boxed|get_computed_kernel|tls_set_)")
STATIC = re.compile("_to_static_module$")  # their modules call kernels without the dispatcher
TENSOR_EXPRESSIONS: Any = getattr(C, "_te", None)  # so do its programs: what runs them is refused
RUNS_EXPRESSIONS = (("construct_codegen", ""), ("TensorExprKernel", "__init__"), ("SimpleIREvaluator", "__init__"))
BOXED = re.compile("boxed$")  # methods that call a kernel
FUNCTIONS |= {f"torch._C.{name}": (C, name) for name in vars(C) if PAST.search(name) or STATIC.search(name)}
FUNCTIONS |= {
    f"torch._C._te.{name}": (getattr(TENSOR_EXPRESSIONS, name), method) if method else (TENSOR_EXPRESSIONS, name)
    for name, method in RUNS_EXPRESSIONS
    if hasattr(TENSOR_EXPRESSIONS, name)
}
FUNCTIONS |= {
    f"torch._C.{kind.__name__}.{name}": (kind, name)
    for kind in vars(C).values()
    if isinstance(kind, type)
    for name in vars(kind)
    if BOXED.search(name)
}
# Torch's compiler calls a function with the frames of all code. Grading runs without it.
EVAL_FRAME: Any = C._dynamo.eval_frame
HOOKS = re.compile("set_eval_frame$|set_bytecode_debugger_callback$")
CALLBACKS = {f"torch._C._dynamo.eval_frame.{name}": (EVAL_FRAME, name) for name in dir(EVAL_FRAME) if HOOKS.match(name)}
SHIMS = frozenset((*FUNCTIONS, *CALLBACKS))
NAMED: dict[str, tuple[Any, str]] = {  # refused where an exercise names them
    f"numpy._core.multiarray.{name}": (multiarray, name) for name in ("correlate", "correlate2")
}
NAMED |= {f"numpy.{name}": (numpy, name) for name in ("logaddexp", "logaddexp2")}
NAMED["torch._C._jit_differentiate"] = C, "_jit_differentiate"
NAMED |= {f"torch._C._autograd.{name}": (C._autograd, name) for name in ("_enable_profiler", "_enable_profiler_legacy")}
NAMED["torch._C._profiler._add_execution_trace_observer"] = C._profiler, "_add_execution_trace_observer"
if torch.distributed.is_available():
    C10D: Any = torch._C._distributed_c10d
    FUNCTIONS_OF_C10D = [name for name, value in vars(C10D).items() if isinstance(value, types.BuiltinFunctionType)]
    NAMED |= {f"torch._C._distributed_c10d.{name}": (C10D, name) for name in FUNCTIONS_OF_C10D}
TOLD = ("nin", "nout", "nargs", "ntypes", "types", "identity", "signature")  # what code asks a ufunc for
WAYS = ("reduce", "accumulate", "reduceat", "outer", "at")  # to call one
GRAPHS = {"_set_grad_enabled": True, "_InferenceMode": False}  # the argument with which each turns graphs on
STARTS = ("start_new_thread", "start_new", "start_joinable_thread")  # of `_thread`
_watches: list[Callable[[], AbstractContextManager]] = []  # of harnesses, for threads that begin


def in_front(name: str, function: Callable) -> Callable:
    """Return `function` with an audit event before it."""
    audit = sys.audit

    def call(*args: Any, **kwargs: Any) -> Any:
        audit(SHIM, name)
        return function(*args, **kwargs)

    return opaque(call)


def shimmed(name: str, function: Any) -> Callable:
    """Return a shim before a C function, with what code asks it for: its name, text, and types."""
    shim: Any = in_front(name, function)
    shim.__name__ = shim.__qualname__ = name.rpartition(".")[2]
    shim.__module__, shim.__doc__ = name.rpartition(".")[0], getattr(function, "__doc__", None)
    for told in TOLD:
        if hasattr(function, told):
            setattr(shim, told, getattr(function, told))
    for way in WAYS if isinstance(function, numpy.ufunc) else ():
        setattr(shim, way, in_front(name, getattr(function, way)))
    return shim


def in_front_of_callbacks(name: str, function: Callable) -> Callable:
    """Return `function` with an audit event before a call that gives it a function."""
    audit, is_callable = sys.audit, callable

    def call(*args: Any) -> Any:
        if any(is_callable(arg) for arg in args):
            audit(SHIM, name)
        return function(*args)

    return opaque(call)


def starting(start: Callable, guard: Any) -> Callable:
    """Return the thread-starting function `start`, changed so that `guard` and harnesses watch the new thread like its
    parent."""

    def begin(function: Callable, *rest: Any, **options: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with guard.watched(), contextlib.ExitStack() as entered:
                for watch in _watches:
                    entered.enter_context(watch())
                return function(*args, **kwargs)

        return start(opaque(run) if callable(function) else function, *rest, **options)

    return opaque(begin)


@opaque  # a harness's module holds it
@contextlib.contextmanager
def in_threads(watch: Callable[[], AbstractContextManager]) -> Iterator[bool]:
    """Run the threads that begin in the block in a `watch()` each; yield False where no shims are installed."""
    _watches.append(watch)
    try:
        yield not isinstance(_thread.start_new_thread, types.BuiltinFunctionType)
    finally:
        _watches.remove(watch)


def turning(turn: Callable, on: bool, guard: Any) -> Callable:
    """Return `turn`, which turns autograd's graphs on or off, changed so that `guard` is asked first."""

    def call(*args: Any, **kwargs: Any) -> Any:
        guard.enable_graphs(bool(next(iter((*args, *kwargs.values())), True)) is on)
        return turn(*args, **kwargs)

    return opaque(call)


def without_frames(set_handler: Callable) -> Callable:
    """Return `signal.signal`, changed so that no handler but a time limit's receives a frame."""
    set_before: dict[int, Callable] = {}  # a time limit sets an answer's handler again when it ends

    def call(number: Any, handler: Any) -> Any:
        is_limit = type(handler) is types.FunctionType and handler.__code__.co_filename == limits.__file__
        spared = is_limit or handler is signal.default_int_handler or handler is set_before.get(number)
        if callable(handler) and not spared:
            set_before[number] = handler = _without_frame(handler)
        return set_handler(number, handler)

    return opaque(call)


def _without_frame(handler: Callable) -> Callable:
    return opaque(lambda number, frame: handler(number, None))


def install(guard: Any) -> None:
    """Install the shims in a process that will run student code."""
    for name, (owner, attribute) in {**FUNCTIONS, **NAMED}.items():
        if isinstance(owner, type):
            setattr(owner, attribute, in_front(name, vars(owner)[attribute]))
        elif (function := getattr(owner, attribute, None)) is not None:
            replace(
                function, shimmed(name, function) if isinstance(function, numpy.ufunc) else in_front(name, function)
            )
    for name, (owner, attribute) in CALLBACKS.items():
        setattr(owner, attribute, in_front_of_callbacks(name, getattr(owner, attribute)))
    for attribute, on in GRAPHS.items():
        replace(getattr(C, attribute), turning(getattr(C, attribute), on, guard))
    replace(_signal.signal, without_frames(_signal.signal))
    for attribute in STARTS:
        if (function := getattr(_thread, attribute, None)) is not None:
            replace(function, starting(function, guard))


def replace(function: Any, shim: Callable) -> None:
    """Replace `function` by `shim` in all imported modules."""
    for module in list(sys.modules.values()):
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if value is function:
                setattr(module, key, shim)
