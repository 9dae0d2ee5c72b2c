"""The compiled kernels on a processor with shorter vectors than this one's: AVX2, where there is AVX-512."""

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
from llvmlite import binding

binding.get_host_cpu_features = dict  # a processor that says nothing of AVX-512
import torch
from hpcdl.conv import ALGORITHMS
from hpcdl.kernels.cpu import vectors

assert vectors.VECTOR_BYTES == 32
torch.manual_seed(0)
for dtype, most in ((torch.float32, 3e-5), (torch.float64, 1e-12)):
    for N, C, H, W, K in ((2, 20, 9, 11, 37), (9, 5, 7, 6, 3)):
        x, w = torch.randn(N, C, H, W, dtype=dtype), torch.randn(K, C, 3, 3, dtype=dtype)
        expected = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
        for name in ("direct", "winograd_2x2", "winograd_4x4", "fft"):
            error = (ALGORITHMS[name](x, w, padding=1) - expected).abs().max() / expected.abs().max()
            assert error < most, (name, dtype, error)
print("right")
"""


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX2 is an extension of x86-64")
def test_kernels_for_avx2_are_right(tmp_path):
    other = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(command, env=os.environ | other, capture_output=True, text=True, timeout=250, check=False)
    assert ended.stdout == "right\n", ended.stderr
