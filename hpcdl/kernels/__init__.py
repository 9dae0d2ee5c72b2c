"""Kernels, one file for each operation: for GPUs in Triton, for CPUs in Numba; each is imported when first used.

The Triton kernels run on a GPU, or anywhere on Linux, slowly, in Triton's interpreter, if TRITON_INTERPRET=1 is set
before they are imported. `hpcdl.kernels.ahead_of_time` compiles them for cards that this machine does not have.
"""

from hpcdl.lazy import exports

# Triton is imported when the first of its kernels is used.
__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "conv2d_simple": "conv_simple",
        "conv2d_implicit": "conv_implicit",
        "conv2d_winograd": "conv_winograd",
        "winograd_filters": "conv_winograd",
        "conv2d_depthwise": "conv_depthwise",
        "im2col": "conv_im2col",
    },
)
