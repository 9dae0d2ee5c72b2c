"""Stochastic rounding compiled by Numba: the bits of plain torch, on any number of threads, from any place."""

import os
import platform
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from hpcdl.numerics.rounding import BF16, FLOATS, Fixed, sgd, stochastic
from hpcdl.numerics.rounding import plain as in_torch
from hpcdl.numerics.rounding.formats import encode

FORMATS = [*FLOATS.values(), Fixed(4, 12), Fixed(1, 15), Fixed(1, 23), Fixed(24, 0), Fixed(2, 0)]


@pytest.fixture(scope="module")
def kernels(need):
    need("numba", find_spec("numba") is not None, "pip install numba")
    from hpcdl.kernels.cpu import rounding

    return rounding


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def any_bits(n: int) -> torch.Tensor:
    """Float32 of any bits: NaN of many kinds, infinities, subnormal and ordinary numbers."""
    bits = torch.randint(-(2**31), 2**31, (n,), generator=torch.Generator().manual_seed(n)).to(torch.int32)
    return torch.cat([bits.view(torch.float32), torch.tensor([0.0, -0.0, torch.inf, -torch.inf]), torch.randn(n)])


def test_any_number_of_threads_gives_the_bits_of_torch(kernels, threads):
    for fmt in FORMATS:
        for place in ((0, 0), (2**63 + 5, 3), (7, 2**40 + 5)):
            x = any_bits(40_000)
            compiled, plain = torch.empty_like(x), torch.empty_like(x)
            kernels.round_into(x, compiled, fmt, *place)
            in_torch.round_into(x, plain, fmt, *place)
            assert torch.equal(compiled.view(torch.int32), plain.view(torch.int32)), f"{fmt} {place}"


@pytest.mark.parametrize("n", [0, 1, 7, 8, 2047, 2048, 2049])  # a block has 2,048
@pytest.mark.parametrize("offset", [0, 1, 2047])
def test_the_ends_of_blocks(kernels, n, offset):
    x = torch.randn(n)
    guarded = torch.full((n + 2,), torch.nan)
    plain = torch.empty(n)
    kernels.round_into(x, guarded[1:-1], BF16, 3, offset)
    in_torch.round_into(x, plain, BF16, 3, offset)
    assert torch.equal(guarded[1:-1], plain)
    assert guarded[[0, -1]].isnan().all()


@pytest.mark.parametrize("fmt", [BF16, Fixed(4, 12), Fixed(2, 8)], ids=str)
def test_what_is_stored_and_the_fused_step_have_the_bits_of_torch(kernels, fmt):
    n = 5003
    x = any_bits(n // 2)[:n]
    stored = [torch.empty(len(x), dtype=fmt.dtype) for _ in range(2)]
    for out, round_into in zip(stored, (kernels.round_into, in_torch.round_into), strict=True):
        round_into(x, out, fmt, 9, 5)
    assert torch.equal(*(out.view(torch.int16) for out in stored))

    w = encode(stochastic.stochastic_round(torch.randn(n), fmt, seed=0), fmt)
    g, v = torch.randn(n), torch.randn(n)
    g[3], g[5] = torch.nan, torch.inf
    steps = [(w.clone(), g, v.clone()) for _ in range(2)]
    kernels.sgd_into(*steps[0], fmt, 0.1, 0.9, 7, 5)
    sgd.sgd_into(*steps[1], fmt, 0.1, 0.9, 7, 5)
    assert torch.equal(*(step[0].view(torch.int16) for step in steps))
    assert torch.equal(*(step[2].view(torch.int32) for step in steps))


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX2 is an extension of x86-64")
def test_a_processor_with_shorter_vectors_gives_the_same_bits(kernels, tmp_path):
    x = any_bits(5000)
    x_file, out_file = tmp_path / "x.pt", tmp_path / "out.pt"
    torch.save(x, x_file)
    other = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, x_file, out_file]
    subprocess.run(command, env=os.environ | other, check=True, timeout=250)
    for fmt, found in zip(FORMATS, torch.load(out_file), strict=True):
        here = torch.empty_like(x)
        kernels.round_into(x, here, fmt, 7, 5)
        assert torch.equal(found.view(torch.int32), here.view(torch.int32)), str(fmt)


IN_ANOTHER_PROCESS = """
import sys
import torch
from hpcdl.kernels.cpu import rounding as rounding_cpu
from hpcdl.numerics.rounding import FLOATS, Fixed

formats = [*FLOATS.values(), Fixed(4, 12), Fixed(1, 15), Fixed(1, 23), Fixed(24, 0), Fixed(2, 0)]
x = torch.load(sys.argv[1])
outs = [torch.empty_like(x) for _ in formats]
for out, fmt in zip(outs, formats):
    rounding_cpu.round_into(x, out, fmt, 7, 5)
torch.save(outs, sys.argv[2])
"""


def test_a_computer_where_nothing_can_be_written_still_compiles(kernels, monkeypatch):
    def njit(nogil, cache=False):
        def decorate(function):
            if cache:
                raise RuntimeError("cannot cache function: no locator available")  # as Numba says it
            return f"compiled {function}, nogil {nogil}"

        return decorate

    monkeypatch.setattr(kernels, "njit", njit)
    assert kernels.compiled("it") == "compiled it, nogil True"


def test_without_numba_and_for_few_elements_torch_does_it(monkeypatch):
    monkeypatch.setattr(stochastic, "_installed", lambda module: False)
    assert stochastic.fastest("cpu", 1 << 20) is None
    assert stochastic.fastest("cuda", 1 << 20) is None
