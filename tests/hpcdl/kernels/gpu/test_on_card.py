"""The kernels on a real GPU, if there is one; and the errors without a GPU, or without Triton."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hpcdl.kernels.advice import NO_TRITON

ROOT = Path(__file__).parents[4]


def run(*command, seconds: float) -> subprocess.CompletedProcess:
    """A process in which kernels are compiled, not interpreted."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=seconds,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", ["others", "algorithms", "half", "bfloat16", "tf32", "tf32x3", "ieee"])
def test_every_kernel_and_tile_against_float64(part, need):
    need("gpu", torch.cuda.is_available(), "the compiled kernels run on a GPU only")
    ended = run(str(Path(__file__).with_name("on_card.py")), part, seconds=850)
    assert ended.returncode == 0, ended.stdout + ended.stderr


WORDS = """
import sys, torch
from hpcdl.conv import ALGORITHMS
assert "triton" not in sys.modules
x, w = torch.zeros(1, 2, 4, 4), torch.zeros(2, 2, 3, 3)
try:
    ALGORITHMS["direct"].interpreted()(x, w)
except ValueError as error:
    print(error)
for name in [name for name in sys.modules if name.startswith(("hpcdl.kernels.", "triton"))]:
    del sys.modules[name]
sys.modules["triton"] = None
try:
    ALGORITHMS["direct"].interpreted()(x, w)
except ImportError as error:
    print(error)
"""


def test_without_a_gpu_or_without_triton_a_sentence_says_what_to_do():
    ended = run("-c", WORDS, seconds=60)
    assert ended.returncode == 0, ended.stderr
    no_gpu, no_triton = ended.stdout.splitlines()
    assert no_gpu.startswith("Triton compiles its kernels here; set TRITON_INTERPRET=1")
    assert no_triton == NO_TRITON


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which the benchmark would measure for minutes")
@pytest.mark.labs
def test_the_benchmark_says_that_nothing_was_measured_without_a_gpu():
    ended = run("-m", "benchmarks", "convolution_gpu", seconds=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("not measured: no GPU") == 3
