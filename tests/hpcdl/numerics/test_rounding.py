"""Formats, neighbours and rounding to nearest, against ml_dtypes, numpy and torch, on every code there is."""

import re

import ml_dtypes
import numpy as np
import pytest
import torch

from hpcdl.numerics.rounding import (
    BF16,
    FLOATS,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    Fixed,
    decode,
    encode,
    neighbours,
    round_nearest,
    stochastic_round,
)

ORACLES = {
    BF16: ml_dtypes.bfloat16,
    FP16: np.float16,
    FP8_E4M3: ml_dtypes.float8_e4m3fn,
    FP8_E5M2: ml_dtypes.float8_e5m2,
}
WORDS = [Fixed(4, 12), Fixed(1, 15), Fixed(16, 0), Fixed(4, 4), Fixed(8, 0), Fixed(2, 0)]
ALL = [*ORACLES, *WORDS]


def codes(fmt) -> torch.Tensor:
    """The value of every code of a format, NaN and infinities included, as others have it."""
    if isinstance(fmt, Fixed):
        return torch.arange(-(2 ** (fmt.wl - 1)), 2 ** (fmt.wl - 1)).double().div(2**fmt.fl).float()
    width = np.dtype(ORACLES[fmt]).itemsize
    every = np.arange(2 ** (8 * width)).astype(f"uint{8 * width}").view(ORACLES[fmt])
    return torch.from_numpy(every.astype(np.float32))


def ladder(fmt) -> torch.Tensor:
    """The finite numbers of a format in order, each once."""
    values = codes(fmt)
    return values[values.isfinite()].unique()


def crossings(fmt) -> torch.Tensor:
    """Every midpoint between neighbours, and one float32 to either side of it."""
    steps = ladder(fmt).double()
    middle = ((steps[1:] + steps[:-1]) / 2).float()
    up, down = (torch.nextafter(middle, torch.tensor(end)) for end in (torch.inf, -torch.inf))
    return torch.cat([middle, up, down])


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal to the sign of zero, where all NaN are one."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(
        a.nan_to_num(0.5, torch.inf, -torch.inf).view(torch.int32),
        b.nan_to_num(0.5, torch.inf, -torch.inf).view(torch.int32),
    )


@pytest.mark.parametrize("fmt", ALL, ids=str)
def test_every_code_is_its_own_neighbours_and_stays_however_it_is_rounded(fmt):
    values = codes(fmt)
    assert len(values) == 2 ** (8 * fmt.dtype.itemsize) or isinstance(fmt, Fixed)
    for result in (*neighbours(values, fmt), round_nearest(values, fmt), stochastic_round(values, fmt, seed=1)):
        assert same_bits(result, values)


@pytest.mark.parametrize("fmt", ORACLES, ids=str)
def test_nearest_equals_ml_dtypes_numpy_and_torch(fmt):
    x = crossings(fmt)
    assert same_bits(round_nearest(x, fmt), torch.from_numpy(x.numpy().astype(ORACLES[fmt]).astype(np.float32)))
    assert same_bits(round_nearest(x, fmt), x.to(fmt.dtype).float())


@pytest.mark.parametrize("fmt", WORDS, ids=str)
def test_nearest_in_fixed_point_is_the_even_one_of_two_and_saturates(fmt):
    x = torch.cat([crossings(fmt), torch.randn(1000) * fmt.max, torch.tensor([1e30, -1e30, torch.inf, -torch.inf])])
    words = np.rint(x.double().numpy() * 2.0**fmt.fl).clip(-(2 ** (fmt.wl - 1)), 2 ** (fmt.wl - 1) - 1)
    assert torch.equal(round_nearest(x, fmt).double(), torch.from_numpy(words / 2.0**fmt.fl))


@pytest.mark.parametrize("fmt", ALL, ids=str)
def test_neighbours_are_the_rungs_below_and_above(fmt):
    steps = ladder(fmt)
    x = torch.cat([crossings(fmt), torch.randn(5000) * 2.0 ** torch.randint(-12, 4, (5000,))])
    x = x[(x > steps[0]) & (x < steps[-1])]
    lower, upper = neighbours(x, fmt)
    assert torch.equal(lower, steps[torch.searchsorted(steps, x, right=True) - 1])
    assert torch.equal(upper, steps[torch.searchsorted(steps, x)])


@pytest.mark.parametrize("fmt", FLOATS.values(), ids=str)
def test_the_sign_of_zero_survives_also_where_a_number_sinks_to_zero(fmt):
    x = torch.tensor([0.0, -0.0, 1e-45, -1e-45])
    assert same_bits(round_nearest(x, fmt), torch.tensor([0.0, -0.0, 0.0, -0.0]))
    lower, upper = neighbours(x, fmt)
    tiny = ladder(fmt).abs()[ladder(fmt) != 0].min().item()
    assert same_bits(lower, torch.tensor([0.0, -0.0, 0.0, -tiny]))
    assert same_bits(upper, torch.tensor([0.0, -0.0, tiny, -0.0]))


def test_fixed_point_has_one_zero():
    x = torch.tensor([-0.0, -1e-9])
    assert not torch.signbit(round_nearest(x, Fixed(4, 12))).any()
    assert not torch.signbit(neighbours(x, Fixed(4, 12))[1]).any()


@pytest.mark.parametrize("fmt", [BF16, FP16, FP8_E5M2], ids=str)
def test_beyond_the_largest_number_lies_infinity(fmt):
    gap = 2 * (fmt.max - ladder(fmt)[-2].item()) / 2
    half = torch.tensor(fmt.max + gap / 2)
    just_below = torch.nextafter(half, torch.tensor(0.0))
    x = torch.stack([just_below, half, -just_below, -half])
    assert round_nearest(x, fmt).tolist() == [fmt.max, torch.inf, -fmt.max, -torch.inf]
    lower, upper = neighbours(x, fmt)
    assert lower.tolist() == [fmt.max, fmt.max, -torch.inf, -torch.inf]
    assert upper.tolist() == [torch.inf, torch.inf, -fmt.max, -fmt.max]


@pytest.mark.parametrize("fmt", [FP8_E4M3, Fixed(4, 12)], ids=str)
def test_a_format_without_infinity_saturates(fmt):
    x = torch.tensor([500.0, -500.0, 3e38, torch.inf, -torch.inf])
    ends = [fmt.max, fmt.min, fmt.max, fmt.max, fmt.min]
    for result in (*neighbours(x, fmt), round_nearest(x, fmt), stochastic_round(x, fmt, seed=1)):
        assert result.tolist() == ends


def test_the_ranges_are_those_of_the_standards():
    assert (BF16.max, FP16.max) == (torch.finfo(torch.bfloat16).max, 65504)
    assert (FP8_E4M3.max, FP8_E5M2.max) == (448, 57344)
    assert (Fixed(4, 12).min, Fixed(4, 12).max, Fixed(4, 12).eps) == (-8, 8 - 2**-12, 2**-12)


@pytest.mark.parametrize("fmt", [*ORACLES, Fixed(4, 12), Fixed(4, 4), Fixed(8, 16)], ids=str)
def test_what_is_stored_comes_back(fmt):
    values = round_nearest(torch.randn(1000), fmt)
    stored = encode(values, fmt)
    assert stored.dtype == fmt.dtype
    assert torch.equal(decode(stored, fmt), values)


def test_nan_is_kept_where_it_can_be():
    nan = torch.tensor([torch.nan])
    assert all(decode(encode(nan, fmt), fmt).isnan() for fmt in FLOATS.values())
    assert encode(nan, Fixed(4, 12)).item() == 0


@pytest.mark.parametrize(
    ("il", "fl", "words"),
    [
        (-1, 3, "il is -1 in Fixed(-1, 3); it counts the sign bit: 1 or more"),
        (0, 3, "il is 0"),
        (3, -1, "fl is -1 in Fixed(3, -1); it counts bits: 0 or more"),
        (8, 32, "il + fl is 40 in Fixed(il=8, fl=32); a word has 2 to 24 bits"),
        (1, 0, "il + fl is 1"),
        (2.5, 3, "il is 2.5"),
    ],
)
def test_a_bad_word_is_refused_with_the_rule(il, fl, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Fixed(il, fl)


@pytest.mark.parametrize("f", [neighbours, round_nearest, lambda x, fmt: stochastic_round(x, fmt, seed=0)])
def test_what_cannot_be_rounded_is_refused_with_advice(f):
    with pytest.raises(ValueError, match=r"x has dtype torch.int64; .* x.float\(\) makes it one"):
        f(torch.arange(3), BF16)
    with pytest.raises(ValueError, match=r"x has dtype torch.float64; .* rounds it to float32 first"):
        f(torch.zeros(3, dtype=torch.float64), BF16)
    with pytest.raises(ValueError, match=r"fmt is torch.bfloat16; a format is Fixed\(il, fl\) or one of BF16, FP16"):
        f(torch.zeros(3), torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_widened_first(dtype):
    x = torch.randn(100).to(dtype)
    assert torch.equal(round_nearest(x, FP8_E5M2), round_nearest(x.float(), FP8_E5M2))


@pytest.mark.parametrize("f", [lambda x: neighbours(x, BF16)[0], lambda x: round_nearest(x, BF16)])
def test_views_and_odd_shapes_are_right(f):
    x = torch.randn(6, 8)
    assert torch.equal(f(x.T), f(x).T)
    assert f(torch.tensor(1.0)).shape == ()
    assert f(torch.empty(0, 3)).shape == (0, 3)
