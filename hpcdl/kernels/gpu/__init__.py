"""Kernels for GPUs, written in Triton, one file for each operation; import the one that you need.

They take tensors and plain numbers that the caller has checked: `hpcdl.conv` and `hpcdl.numerics.rounding` are the ways
in. They run on a GPU, or anywhere on Linux, slowly, in Triton's interpreter, if TRITON_INTERPRET=1 is set before they
are imported. `base` is what all of them need, `tiles` the block sizes that an autotuner tries.
"""
