"""Kernels, one file for each operation: `cpu/` in Numba, `gpu/` in Triton; each is imported when first used.

    from hpcdl.kernels.anywhere import DEVICE, run, tl, triton      # Triton in a notebook, with a GPU or without

`hpcdl.kernels.ahead_of_time` compiles Triton's kernels for cards that this machine does not have;
`winograd_transforms` holds the additions that every implementation of Winograd's algorithm shares but Triton's.
"""
