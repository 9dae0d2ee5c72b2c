"""Formats of one's own, and tensors that are no float32: rounded by their definition, or refused."""

import math

import numpy as np
import pytest
import torch

from hpcdl.numerics.rounding import (
    BF16,
    FLOATS,
    FP8_E5M2,
    FP16,
    Fixed,
    Float,
    decode,
    encode,
    neighbours,
    round_nearest,
    sgd_step,
    stochastic_round,
)

OWN = [
    Float("E3M2", 3, 2, torch.float16),
    Float("E2M1", 2, 1, torch.bfloat16, has_infinity=False),
    Float("TF32", 8, 10, torch.float32),
    Float("E6M9", 6, 9, torch.float32),
    Float("half in float32", 5, 10, torch.float32),
]


def samples() -> torch.Tensor:
    edges = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -3e38, 14.0, 15.99, 16.0, 65519.99, 65520.0])
    drawn = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    return torch.cat([edges, drawn, drawn * 2.0**-14, drawn.round() / 8, drawn * 1e4])


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.nan_to_num(7.7).double(), b.nan_to_num(7.7).double())


@pytest.mark.parametrize("fmt", [*OWN, *FLOATS.values()], ids=str)
def test_nearest_is_the_nearer_neighbour(fmt):
    x = samples()
    rounded, (lower, upper) = round_nearest(x, fmt), neighbours(x, fmt)
    assert bool(((rounded == lower) | (rounded == upper) | x.isnan()).all())
    inside = x.isfinite() & lower.isfinite() & upper.isfinite() & (x.abs() <= fmt.max)
    errors = [(x - side).double().abs()[inside] for side in (rounded, lower, upper)]
    assert torch.equal(errors[0], torch.minimum(*errors[1:]))
    even = (errors[1] == errors[2]) & (lower != upper)[inside]
    assert bool(((rounded.double() / fmt.quantum(rounded))[inside][even] % 2 == 0).all())


def test_definition_and_not_dtype():
    x = samples()
    assert same(round_nearest(x, OWN[-1]), round_nearest(x, FP16))
    assert same(round_nearest(x, Float("wide", 8, 7, torch.float32)), round_nearest(x, BF16))
    assert same(round_nearest(x, Float("E5M2", 5, 2, torch.float16)), round_nearest(x, FP8_E5M2))


@pytest.mark.parametrize("fmt", OWN, ids=str)
def test_stored_and_read_back(fmt):
    rounded = round_nearest(samples(), fmt)
    assert same(decode(encode(rounded, fmt), fmt), rounded)


@pytest.mark.parametrize("bits", [(1, 2), (9, 2), (3, 0), (3, 23), (3.0, 2)])
def test_numbers_float32_lacks(bits):
    with pytest.raises(ValueError, match=r"E has .* float32 has the numbers of 2 to 8 and 1 to 22"):
        Float("E", *bits, torch.float32)


def test_dtype_too_small():
    for bits, dtype in (((5, 11), torch.float16), ((6, 2), torch.float16), ((5, 8), torch.bfloat16)):
        with pytest.raises(ValueError, match=r"has not all numbers of E; store them in torch\.float32"):
            Float("E", *bits, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("fmt", [BF16, FP16, Fixed(4, 4)], ids=str)
def test_encode_takes_float32(fmt, dtype):
    with pytest.raises(ValueError, match=f"values are {dtype}; give float32"):
        encode(torch.ones(2, dtype=dtype), fmt)


def test_words_do_not_wrap_around():
    for beyond in (8.0, -8.5, 100.0, math.inf):
        with pytest.raises(ValueError, match=r"values go beyond -8.0 to 7.9375"):
            encode(torch.tensor([1.0, beyond]), Fixed(4, 4))
    assert encode(torch.tensor([7.9375, -8.0, math.nan]), Fixed(4, 4)).tolist() == [127, -128, 0]


def test_decode_takes_what_was_stored():
    with pytest.raises(ValueError, match=r"codes are torch\.float32; Fixed"):
        decode(torch.ones(1), Fixed(4, 4))


@pytest.mark.parametrize("n", [9, 70_000])
def test_out_that_overlaps(n):
    for lag, fmt in ((1, BF16), (-3, Fixed(4, 12))):
        x = torch.randn(n + 3, generator=torch.Generator().manual_seed(0))
        expected = stochastic_round(x[3:].clone() if lag < 0 else x[:-1].clone(), fmt, seed=2)
        source, out = (x[3:], x[:-3]) if lag < 0 else (x[:-1], x[1:])
        assert torch.equal(stochastic_round(source, fmt, seed=2, out=out), expected)


@pytest.mark.parametrize("number", [None, math.nan, math.inf])
def test_rates_that_are_no_numbers(number):
    w, g, v = torch.zeros(4, dtype=torch.bfloat16), torch.ones(4), torch.zeros(4)
    for name in ("lr", "momentum"):
        with pytest.raises(ValueError, match=f"{name} is {number}, which would make every weight NaN"):
            sgd_step(w, g, v, BF16, **{"lr": 0.1, name: number}, seed=0)
    assert not v.any()


@pytest.mark.parametrize("x", [[0.1], 0.1, np.ones(2)])
def test_only_tensors(x):
    with pytest.raises(TypeError, match="tensors are rounded"):
        round_nearest(x, BF16)
