"""Stochastic rounding in Triton: the bits of the CPU in the interpreter, wide and short code ahead of time."""

import math
import os
import subprocess
import sys

import pytest
import torch

from hpcdl.kernels.ahead_of_time import TARGETS, Build, compile_ahead
from hpcdl.numerics.rounding import (
    BF16,
    FLOATS,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    Fixed,
    encode,
    round_nearest,
    sgd,
    stochastic_round,
)
from hpcdl.numerics.rounding import plain as in_torch
from hpcdl.numerics.rounding.philox import random_bits

FORMATS = [*FLOATS.values(), Fixed(4, 12), Fixed(1, 23)]
PLACES = [(1, 0), (2**63 + 5, 3), (2**33, 2**40 + 5)]


@pytest.fixture(scope="module")
def kernels(interpreter):
    from hpcdl.kernels.gpu import rounding

    return rounding


def any_bits(n: int) -> torch.Tensor:
    bits = torch.randint(-(2**31), 2**31, (n,), generator=torch.Generator().manual_seed(n)).to(torch.int32)
    return torch.cat([bits.view(torch.float32), torch.tensor([0.0, -0.0, torch.inf, -torch.inf]), torch.randn(n)])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN and infinities in the interpreter
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize(("seed", "offset"), PLACES)
@pytest.mark.parametrize("n", [1, 1250, 3000])  # twice n and 4: below a block; a whole one and a tail
def test_the_interpreter_gives_the_bits_of_the_cpu(kernels, fmt, seed, offset, n):
    x = any_bits(n)
    found, plain = torch.empty_like(x), torch.empty_like(x)
    kernels.round_into(x, found, fmt, seed, offset)
    in_torch.round_into(x, plain, fmt, seed, offset)
    assert torch.equal(found.view(torch.int32), plain.view(torch.int32))


def at_the_edge(fmt, r: torch.Tensor) -> torch.Tensor:
    """Numbers that these random bits just lift to the outer neighbour, or just do not, by the last bits they have."""
    generator = torch.Generator().manual_seed(1)

    def draw(low, high):
        return torch.randint(low, high, r.shape, generator=generator)

    if isinstance(fmt, Fixed):
        gap, multiple, sign = fmt.eps, draw(int(fmt.min / fmt.eps), int(fmt.max / fmt.eps)), 1
    else:
        exponent = draw(fmt.min_exponent, math.frexp(fmt.max)[1])
        normal = torch.where(exponent > fmt.min_exponent, 2**fmt.mantissa_bits, 0)
        gap = torch.exp2((exponent - fmt.mantissa_bits).double())
        multiple, sign = normal + draw(0, 2 << fmt.mantissa_bits) % (2 ** (fmt.mantissa_bits + 1) - normal), draw(0, 2)
        sign = 2 * sign - 1
    edge = ((multiple + 1 - (r + 0.5) / 2**fmt.random_bits) * gap).float()
    return (edge.view(torch.int32) + draw(-2, 3).to(torch.int32)).view(torch.float32) * sign


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, where a number becomes infinite
@pytest.mark.parametrize("fmt", [*FORMATS, Fixed(8, 8), Fixed(2, 6)], ids=str)
def test_interpreter_has_the_bits_of_the_cpu_near_ties(kernels, fmt):
    x = at_the_edge(fmt, random_bits(3, 0, 50_000, bits=fmt.random_bits))
    found, plain = torch.empty_like(x), torch.empty_like(x)
    kernels.round_into(x, found, fmt, 3, 0)
    in_torch.round_into(x, plain, fmt, 3, 0)
    lifted = (plain.abs() > x.abs()).double().mean()
    assert 0.2 < lifted < 0.8, "the edge is where it should be"
    assert torch.equal(found.view(torch.int32), plain.view(torch.int32))


@pytest.mark.parametrize("block", [256, 1024])
def test_the_launch_shape_changes_nothing(kernels, block, monkeypatch):
    x = torch.randn(3001)
    expected, found = stochastic_round(x, BF16, seed=5), torch.empty_like(x)
    monkeypatch.setattr(kernels, "BLOCK", block)
    kernels.round_into(x, found, BF16, 5, 0)
    assert torch.equal(found, expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fmt", [BF16, Fixed(4, 12)], ids=str)
@pytest.mark.parametrize("offset", [0, 5])
def test_what_is_stored_and_the_fused_step_have_the_bits_of_the_cpu(kernels, fmt, offset):
    x = any_bits(1500)
    stored = [torch.empty(len(x), dtype=fmt.dtype) for _ in range(2)]
    for out, round_into in zip(stored, (kernels.round_into, in_torch.round_into), strict=True):
        round_into(x, out, fmt, 9, offset)
    assert torch.equal(*(out.view(torch.int16) for out in stored))

    n = 2500
    w = encode(round_nearest(torch.randn(n), fmt), fmt)
    g, v = torch.randn(n), torch.randn(n)
    g[3], g[5] = torch.nan, torch.inf
    steps = [(w.clone(), g, v.clone()) for _ in range(2)]
    kernels.sgd_into(*steps[0], fmt, 0.1, 0.9, 7, offset)
    sgd.sgd_into(*steps[1], fmt, 0.1, 0.9, 7, offset)
    assert torch.equal(*(step[0].view(torch.int16) for step in steps))
    assert torch.equal(*(step[2].view(torch.int32) for step in steps))


# -- ahead of time ----------------------------------------------------------------------------------------------------

CASES = {
    "BF16, stored": (BF16, "*bf16:16"),
    "BF16": (BF16, "*fp32:16"),
    "fixed, stored": (Fixed(4, 12), "*i16:16"),
    "fixed": (Fixed(4, 12), "*fp32:16"),
    "FP16": (FP16, "*fp32:16"),
    "FP8_E4M3": (FP8_E4M3, "*fp32:16"),
    "FP8_E5M2": (FP8_E5M2, "*fp32:16"),
}


@pytest.fixture(scope="module")
def reports(kernels):
    """Of launches on whole blocks, as they are for large tensors."""
    builds = {}
    for target in TARGETS:
        for case, (fmt, out) in CASES.items():
            builds[case, target] = kernels.on_whole_blocks(fmt, out, target)
    types = {"w": "*bf16:16", "g": "*fp32:16", "v": "*fp32:16", "lr": "fp32", "momentum": "fp32", "n": "i32:16"}
    types |= {"skip": "i32:16"} | dict.fromkeys(kernels.PLAIN, "u32")
    constants = kernels.constants(BF16) | {"WHOLE": True}
    builds["step", "sm_90"] = Build("hpcdl.kernels.gpu.rounding:sgd_kernel", types, constants, "sm_90")
    return dict(zip(builds, compile_ahead(builds.values()), strict=True))


@pytest.mark.labs  # compiles every kernel
def test_no_kernel_spills(reports):
    assert [key for key, report in reports.items() if report.spills or not report.fits] == []


@pytest.mark.labs  # compiles every kernel
def test_all_that_is_loaded_and_stored_goes_16_bytes_at_a_time(reports):
    for key, report in reports.items():
        assert set(report.loads) == set(report.stores) == {16}, key


@pytest.mark.labs  # compiles every kernel
def test_eight_elements_share_a_call_of_philox(reports, kernels):
    """Ten rounds have 20 products; with a call for each element BF16 would take some 58 instructions."""
    report = reports["BF16, stored", "sm_90"]
    per_thread = kernels.BLOCK // (32 * report.build.warps)
    assert report.count("IMAD.HI|IMAD.WIDE") <= 20 * per_thread / 8 + 4


@pytest.mark.parametrize(
    ("case", "most"),
    [
        ("BF16, stored", 12),
        ("BF16", 14.5),
        ("fixed, stored", 14),
        ("fixed", 16),
        ("FP8_E4M3", 16),
        ("FP8_E5M2", 16),
        ("FP16", 16),
        ("step", 17),
    ],
)
@pytest.mark.labs  # compiles every kernel
def test_the_code_is_short(reports, kernels, case, most):
    """All the instructions of a program, which has no loop, for its elements."""
    assert reports[case, "sm_90"].per_element(kernels.BLOCK) <= most


@pytest.mark.labs  # compiles every kernel
def test_no_subnormal_number_is_taken_for_zero(reports):
    """The subnormal numbers of FP16 and FP8 go through float32's."""
    for (case, target), report in reports.items():
        if target.startswith("sm"):
            assert not report.count(r"F(MUL|ADD|FMA|MNMX)\S*FTZ"), case


@pytest.mark.labs  # compiles
def test_all_seeds_share_one_compiled_kernel():
    """Triton compiles again for an integer that is 1, or divisible by 16, or longer, unless it is told not to."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", AS_A_LAUNCH_SEES_IT]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.split() == ["1"], ended.stderr


AS_A_LAUNCH_SEES_IT = """
import torch
from itertools import chain
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.jit import create_function_from_signature
from hpcdl.kernels.gpu.rounding import constants, place, round_kernel
from hpcdl.numerics.rounding import BF16
from hpcdl.numerics.rounding.philox import round_keys

bind = create_function_from_signature(round_kernel.signature, round_kernel.params, CUDABackend)
x, seeds = torch.zeros(64), (0, 1, 16, 2**31, 2**63 + 5, 2**64 - 1)
keys = (tuple(chain.from_iterable(round_keys(seed))) for seed in seeds)
print(len({str(bind(x, x, 64, *place(8 * words[0]), *words, **constants(BF16), WHOLE=True)[1]) for words in keys}))
"""


def test_a_launch_ends_where_the_upper_word_of_the_counter_changes(kernels):
    """There a kernel's sum of 32 bits would begin again at zero."""
    x, offset = torch.randn(5000), 2**35 - 504
    assert [place[:2] for place in kernels.launches(5000, offset)] == [(0, 504), (504, 4600), (4600, 5000)]
    found, plain = torch.empty_like(x), torch.empty_like(x)
    kernels.round_into(x, found, BF16, 7, offset)
    in_torch.round_into(x, plain, BF16, 7, offset)
    assert torch.equal(found, plain)


# -- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize(("seed", "offset"), PLACES)
def test_a_gpu_gives_the_bits_of_the_cpu(fmt, seed, offset):
    x = any_bits(200_003)
    on_cpu = stochastic_round(x, fmt, seed=seed, offset=offset)
    on_gpu = stochastic_round(x.cuda(), fmt, seed=seed, offset=offset).cpu()
    assert torch.equal(on_gpu.view(torch.int32), on_cpu.view(torch.int32))
