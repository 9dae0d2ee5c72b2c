"""Triton for a notebook on any machine: on the GPU, otherwise in Triton's interpreter, otherwise with a clear error.

    from hpcdl.kernels.anywhere import DEVICE, run, tl, triton

Import it before anything else imports Triton: the interpreter must be chosen first, and runs slowly on the CPU. If
Triton is not installed (it is for Linux), kernels can still be defined; running one raises an error that says so.
"""

import os
from typing import Any

import torch

from hpcdl.kernels.advice import NO_TRITON

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"


class NoTriton:
    """A substitute for Triton and its language if they are missing: kernels can be defined with it, but not run."""

    constexpr = int

    def jit(self, kernel: Any):
        return self

    def __getattr__(self, name: str):
        raise ImportError(NO_TRITON)


try:
    import triton
    import triton.language as tl
    from triton.runtime.errors import InterpreterError

    from hpcdl.kernels.interpreter import patch
except ImportError:
    triton = tl = NoTriton()
    InterpreterError = ()
else:
    if DEVICE == "cpu":
        patch()


def run(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """`kernel[(programs,)](*arguments, **constants)`; an error in a line of the kernel is raised with its own type.

    Raises ImportError without Triton.
    """
    if isinstance(kernel, NoTriton):
        raise ImportError(NO_TRITON)
    try:
        kernel[(programs,)](*arguments, **constants)
    except InterpreterError as error:
        raise error.__cause__ from None
