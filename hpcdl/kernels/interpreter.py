"""Patch Triton's interpreter: version 3.6 cannot loop to an argument's value with NumPy 2.4 and later.

It uses the value, an array of one number, as an index, which NumPy no longer allows. Triton 3.7 needs no patch.
"""

from typing import Any

import triton
from triton.runtime import interpreter


def patch() -> None:
    """Let loops of interpreted kernels run to values of arguments; do nothing if this Triton can already."""
    prepare = interpreter._patch_lang_tensor
    if not triton.__version__.startswith("3.6.") or prepare.__module__ == __name__:
        return

    def patched(tensor: Any, *scope: Any) -> None:
        prepare(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())

    interpreter._patch_lang_tensor = patched
