"""Say why Triton would not compile the kernel of an answer: its interpreter runs a kernel as Python, with all that
Python can do.

What is judged is what runs: the code that the interpreter makes of the kernel's text, and of the `@triton.jit`
functions that it calls, at every launch. `checks.triton_kernels` has the words.
"""

import linecache
import math
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from .triton_changed import changed
from .triton_code import first_fault, is_of_triton, is_safe

Fault = tuple[str, str, str, int, str]  # the kind, what it is about, the function, its line (or 0) and the line's text


class Launches:
    """What became of a launch: how many kernels it started, and the first fault of one."""

    def __init__(self, launch: Any) -> None:
        """Take `launch`, the lab's own, which starts kernels by `run`; `self.launch` starts those without a fault."""
        self.count = 0
        self.fault: Fault | None = None
        launch = getattr(launch, "__wrapped__", launch)  # a worker watches what it hands to a harness
        self.launch = self.alone(launch) if type(launch) is FunctionType else launch

    @property
    def outcome(self) -> Fault | None:
        """Return the fault; a launch that starts no kernel is one."""
        return self.fault or (None if self.count else ("none", "", "", 0, ""))

    def alone(self, launch: FunctionType) -> FunctionType:
        """Return a copy that has the lab's names for itself: of the notebook's it sees kernels and constants only."""
        names = {**launch.__globals__, "math": math, "torch": torch, "run": self.run}
        for name, value in names.items():
            if type(value) is FunctionType and value.__globals__ is launch.__globals__:
                names[name] = with_names(value, names)
        return with_names(launch, names)

    def run(self, kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
        """Do what `hpcdl.kernels.anywhere.run` does, with a kernel that has no fault."""
        self.count += 1
        self.fault = self.fault or fault_of(kernel)
        if self.fault:
            return
        try:
            kernel[(programs,)](*arguments, **constants)
        except Exception as error:
            cause = error.__cause__ if type(error).__name__ == "InterpreterError" else None
            raise cause or error from None


def with_names(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    """Return a copy of a function with other globals."""
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def fault_of(kernel: Any) -> Fault | None:
    """Return the first fault of a kernel and the functions that it calls; None without one, and without Triton."""
    interpreter, jit = sys.modules.get("triton.runtime.interpreter"), sys.modules.get("triton.runtime.jit")
    if interpreter is None or jit is None:
        return None
    if name := changed():
        return "changed", name, "", 0, ""
    if type(kernel) is vars(jit)["JITFunction"]:  # on a GPU, where Triton's compiler says what it does not compile
        return of_object(kernel)
    if type(kernel) is not vars(interpreter)["InterpretedFunction"]:
        return "kind", type(kernel).__name__, "", 0, ""
    functions = [kernel]
    for each in functions:  # it grows: all are made before one is judged, since making one runs its annotations
        if fault := of_object(each) or remade(each):
            return fault
        functions += [other for other in called(each) if not any(other is known for known in functions)]
    faults = (of_function(code, type(kernel)) for each in functions for code in made_of(each))
    return next(filter(None, faults), None)


def of_object(kernel: Any) -> Fault | None:
    """Return the fault of an object under @triton.jit: hooks, and methods of its own, run beside the kernel."""
    own = vars(kernel)
    if type(own.get("fn")) is not FunctionType:
        return "kind", type(own.get("fn")).__name__, "", 0, ""
    hides = any(
        key in vars(kind)
        for part in (kernel, own.get("rewriter"))
        for key in getattr(part, "__dict__", ())
        for kind in type(part).__mro__
        if key != "__doc__"
    )
    return ("hook", "", str(own["fn"].__name__), 0, "") if hides or own.get("pre_run_hooks") else None


def remade(kernel: Any) -> Fault | None:
    """Let Triton make the kernel's code of its text now: what a cell has put there does not run."""
    type(kernel).rewritten_fn.pop(kernel.fn, None)
    try:
        made = kernel.rewrite()
    except Exception as error:
        return "text", f"{type(error).__name__}: {error}"[:200], kernel.fn.__name__, 0, ""
    return None if type(made) is FunctionType else ("kind", type(made).__name__, "", 0, "")


def made_of(kernel: Any) -> list[FunctionType]:
    """Return what may run of a kernel: what was made of its text, and, in a reduction, the function itself."""
    return [type(kernel).rewritten_fn[kernel.fn], kernel.fn]


def called(kernel: Any) -> list[Any]:
    """Return the answer's functions under @triton.jit that a kernel names."""
    found = []
    for function in made_of(kernel):
        for code in nested(function.__code__):
            values = [function.__globals__.get(name) for name in code.co_names]
            found += [value for value in values if type(value) is type(kernel)]
    return [value for value in found if not is_of_triton(vars(value).get("fn"))]


def nested(code: CodeType) -> Iterator[CodeType]:
    """Return the code of a function, and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from nested(constant)


def of_function(function: FunctionType, kernel: type) -> Fault | None:
    """Return the fault of one function: a default value, or an instruction."""
    name = str(function.__name__)
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if not is_safe(value, kernel):
            return "default", str(getattr(value, "__name__", type(value).__name__)), name, 0, ""
    for code in nested(function.__code__):
        if fault := first_fault(code, function.__globals__, kernel):
            kind, what, line = fault
            return kind, what, name, line, linecache.getline(code.co_filename, line).strip()[:200]
    return None
