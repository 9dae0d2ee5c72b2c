"""Triton for a notebook, whatever the machine: on its GPU, else in Triton's interpreter, else with a sentence.

    from hpcdl.kernels.anywhere import DEVICE, run, tl, triton

Import it before anything else brings Triton: the interpreter has to be chosen first, and runs on the CPU, slowly. Where
Triton is not installed (it is for Linux), a kernel can still be defined, and says so when it is run.
"""

import os
from typing import Any

import torch

from hpcdl.kernels.advice import NO_TRITON

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"


class NoTriton:
    """Stands for Triton and its language where they are not: kernels can be defined with it, and not run."""

    constexpr = int

    def jit(self, kernel: Any):
        return self

    def __getattr__(self, name: str):
        raise ImportError(NO_TRITON)


try:
    import triton
    import triton.language as tl
    from triton.runtime.errors import InterpreterError

    from hpcdl.kernels.interpreter import mend
except ImportError:
    triton = tl = NoTriton()
    InterpreterError = ()
else:
    if DEVICE == "cpu":
        mend()


def run(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """`kernel[(programs,)](*arguments, **constants)`; an error in a line of the kernel is raised as what it is.

    Raises ImportError where there is no Triton.
    """
    if isinstance(kernel, NoTriton):
        raise ImportError(NO_TRITON)
    try:
        kernel[(programs,)](*arguments, **constants)
    except InterpreterError as error:
        raise error.__cause__ from None
