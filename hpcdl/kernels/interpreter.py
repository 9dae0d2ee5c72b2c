"""A fault of Triton's interpreter, mended: that of 3.6 cannot loop to an argument's value with NumPy 2.4 and later.

It takes the value, an array of one number, for an integer, which NumPy no longer does. From 3.7 on it does as here.
"""

import triton
from triton.runtime import interpreter


def mend() -> None:
    """Let loops of interpreted kernels run to values of arguments; nothing where Triton can do so itself."""
    prepare = interpreter._patch_lang_tensor
    if not triton.__version__.startswith("3.6.") or getattr(prepare, "mended", False):
        return

    def mended(tensor: type, *scope) -> None:
        prepare(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())

    mended.mended = True
    interpreter._patch_lang_tensor = mended
