"""Kernels, one file for each operation: for GPUs in Triton, for CPUs in Numba; each is imported when it is first used."""
