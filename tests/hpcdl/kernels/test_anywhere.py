"""Triton in a notebook: errors of a kernel are its own, and without Triton there is a sentence."""

import importlib.util
import os
import subprocess
import sys

import pytest

from hpcdl.kernels.advice import NO_TRITON

KERNEL = """
from hpcdl.kernels.anywhere import run, tl, triton
import torch

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    {body}
"""


def python(tmp_path, body: str, *, before: str = "", after: str) -> str:
    """The output of a program of its own without a GPU, which chooses again; a kernel's source is in a file."""
    program = tmp_path / "program.py"
    program.write_text(before + KERNEL.format(body=body) + after)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton here")
AND_SAY = """
try:
    run(kernel, 1, torch.zeros(4), 4, BLOCK=4)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.labs  # starts Triton's interpreter
@needs_triton
def test_an_error_inside_a_kernel_is_raised_as_what_it_is(tmp_path):
    assert python(tmp_path, "raise NotImplementedError", after=AND_SAY) == "NotImplementedError"


@needs_triton
def test_a_kernel_runs_without_a_gpu_with_as_many_programs_as_asked(tmp_path):
    body = "tl.store(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1.0)"
    after = "x = torch.zeros(10)\nrun(kernel, 2, x, 8, BLOCK=4)\n"
    assert python(tmp_path, body, after=after + "print(x.tolist())") == str([1.0] * 8 + [0.0] * 2)


@pytest.mark.labs
def test_kernel_without_triton_can_be_defined(tmp_path):
    said = python(tmp_path, "pass", before="import sys\nsys.modules['triton'] = None\n", after=AND_SAY)
    assert said.startswith(f"ImportError {NO_TRITON}")
