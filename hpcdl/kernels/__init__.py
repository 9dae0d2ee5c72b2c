"""Kernels, one file for each operation: for GPUs in Triton, for CPUs in Numba; each is imported when first used.

The Triton kernels run on a GPU, or anywhere on Linux, slowly, in Triton's interpreter, if TRITON_INTERPRET=1 is set
before they are imported. `hpcdl.kernels.ahead_of_time` compiles them for cards that this machine does not have.
"""

import importlib

_HOMES = {
    "conv2d_simple": "conv_simple",
    "conv2d_implicit": "conv_implicit",
    "conv2d_winograd": "conv_winograd",
    "winograd_filters": "conv_winograd",
    "conv2d_depthwise": "conv_depthwise",
    "im2col": "conv_im2col",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    # Triton is imported when the first of its kernels is used.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__():
    return __all__
