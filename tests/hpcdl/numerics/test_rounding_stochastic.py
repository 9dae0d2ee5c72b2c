"""Stochastic rounding: its bits against Philox in plain integers, its definition exactly, its bias by counting."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

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
    plain,
    round_nearest,
    sgd_step,
    stochastic_round,
)
from hpcdl.numerics.rounding import stochastic as module
from hpcdl.numerics.rounding.philox import random_bits
from hpcdl.numerics.rounding.plain import round_with
from hpcdl.numerics.rounding.threads import in_rows

FORMATS = [*FLOATS.values(), Fixed(4, 12), Fixed(8, 8), Fixed(8, 16)]
DRAWS = 1 << 24


# -- the bits ---------------------------------------------------------------------------------------------------------


def philox_in_integers(counter: list[int], key: list[int]) -> list[int]:
    """Salmon et al. 2011, section 3.3, word by word."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 % 2**32, (p0 >> 32) ^ c[3] ^ k[1], p0 % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def test_the_oracle_gives_the_known_answers_of_random123():
    ones = 0xFFFFFFFF
    assert philox_in_integers([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox_in_integers([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert philox_in_integers(pi, [0xA4093822, 0x299F31D0]) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def expected_bits(seed: int, p: int, bits: int) -> int:
    call, within = divmod(p, 8)
    words = philox_in_integers([call % 2**32, call >> 32, 0, 0], [seed % 2**32, seed >> 32])
    low, high = words[within // 2] % 2**16, words[within // 2] >> 16
    own, other = (high, low) if within % 2 else (low, high)
    return (own << 16 | other) >> 32 - bits


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 40), st.integers(1, 40), st.integers(1, 31))
def test_each_element_has_the_bits_of_its_number(seed, first, n, bits):
    found = random_bits(seed, first, n, bits=bits).tolist()
    assert found == [expected_bits(seed, p, bits) for p in range(first, first + n)]


@pytest.mark.parametrize("bits", [16, 21])
def test_neighbours_and_seeds_are_uncorrelated(bits):
    n = 1 << 21
    r, other = (random_bits(seed, 0, n, bits=bits).double() - (2**bits - 1) / 2 for seed in (5, 6))
    variance = (4**bits - 1) / 12
    assert abs(r.mean()) < 5 * (variance / n) ** 0.5
    for lag in range(1, 9):
        assert abs((r[lag:] * r[:-lag]).sum()) < 5 * variance * (n - lag) ** 0.5, f"lag {lag}"
    for lag in range(9):
        assert abs((r[lag:] * other[: n - lag]).sum()) < 5 * variance * (n - lag) ** 0.5, f"seeds, lag {lag}"


def test_all_sixteen_bits_are_fair():
    r = random_bits(2**40 + 1, 0, 1 << 20)
    ones = torch.stack([(r >> bit & 1).sum() for bit in range(16)]).double()
    assert (abs(ones - 2**19) < 5 * 2**9).all()


# -- the definition ---------------------------------------------------------------------------------------------------


def anything(n: int = 20_000) -> torch.Tensor:
    """Numbers of all kinds: any bits, ordinary sizes, and the awkward ones."""
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (n,), generator=generator).to(torch.int32).view(torch.float32)
    usual = torch.randn(n, generator=generator) * 2.0 ** torch.randint(-20, 10, (n,), generator=generator)
    return torch.cat([bits, usual, torch.tensor([0.0, -0.0, 1e-45, -1e-45, 3.4e38, 65519.0, 65520.0, 1e4, 449.0])])


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_each_element_goes_where_the_definition_sends_it(fmt):
    x = anything()
    x = x[(x > fmt.min) & (x < fmt.max)]
    parts = 2**fmt.random_bits
    r = torch.randint(0, parts, x.shape, generator=torch.Generator().manual_seed(1)).to(torch.int32)
    lower, upper = neighbours(x, fmt)
    inner, outer = lower, upper
    if not isinstance(fmt, Fixed):
        inner, outer = torch.where(x < 0, upper, lower), torch.where(x < 0, lower, upper)
    f = ((x.double() - inner) / (outer.double() - inner)).nan_to_num(0.0)
    n = torch.floor(f * parts + 0.5) if isinstance(fmt, Fixed) else torch.round(f * parts)  # the second: ties to even
    expected = torch.where(n + r >= parts, outer, inner)
    assert torch.equal(round_with(x, r, fmt).view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_the_result_is_a_neighbour_whatever_the_input(fmt):
    x = anything()
    lower, upper = neighbours(x, fmt)
    result = stochastic_round(x, fmt, seed=3)
    assert torch.equal(result.isnan(), x.isnan())
    assert ((result == lower) | (result == upper) | x.isnan()).all()


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("ends", [[torch.nan], [-torch.nan, torch.inf], [torch.inf, -torch.inf]], ids=str)
def test_one_nan_among_many_numbers_stays_one(fmt, ends):
    x = torch.cat([torch.randn(500), torch.tensor(ends), torch.randn(500)])
    result = round_with(x, torch.zeros(len(x), dtype=torch.int32), fmt)
    assert torch.equal(result.isnan(), x.isnan())


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("f", [0.0, 2**-16, 0.01, 0.25, 0.5, 0.9, 1 - 2**-16, 2**-18, 3 * 2**-18])
def test_of_all_random_bits_the_right_share_goes_up(fmt, f):
    gap, parts = fmt.quantum(torch.tensor(1.0)).item(), 2**fmt.random_bits
    x = torch.full((parts,), 1 + f * gap)
    f = (x[0].double().item() - 1) / gap  # as float32 has it
    up = (round_with(x, torch.arange(parts, dtype=torch.int32), fmt) > 1).sum().item()
    if isinstance(fmt, Fixed):
        assert up == int(f * parts + 0.5)  # so |P(up) - f| <= 2^-17, the stated bound
    else:
        assert up == f * parts


@pytest.mark.parametrize("fmt", [FP16, FP8_E4M3, FP8_E5M2], ids=str)
@pytest.mark.parametrize("f", [0.0, 0.01, 1 / 3, 0.5, 0.9, 2**-10 + 2**-30])
def test_subnormal_numbers_go_up_as_often_as_their_bits_allow(fmt, f):
    least, parts = 2.0 ** (fmt.min_exponent - fmt.mantissa_bits), 2**fmt.random_bits
    x = torch.full((parts,), (1 + f) * least)
    ups = (round_with(x, torch.arange(parts, dtype=torch.int32), fmt) > least).sum().item()
    assert abs(ups / parts - f) <= 0.5 / parts
    assert ups == (round_with(-x, torch.arange(parts, dtype=torch.int32), fmt) < -least).sum()


def test_midpoints_go_up_for_half_of_the_bits():
    lower = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16).float()
    lower = lower[lower.isfinite()]
    middle = (lower.view(torch.int32) | 0x8000).view(torch.float32)
    bits = torch.full(middle.shape, 32767, dtype=torch.int32)
    assert torch.equal(round_with(middle, bits, BF16), lower)
    outer = (lower.view(torch.int32) + 0x10000).view(torch.float32)
    assert torch.equal(round_with(middle, bits + 1, BF16), outer)
    ups = sum((stochastic_round(middle, BF16, seed=seed) == outer).sum().item() for seed in range(64))
    n = 64 * len(middle)
    assert abs(ups - n / 2) < 5 * (n / 4) ** 0.5


@pytest.mark.parametrize("fmt", [BF16, FP16, FP8_E4M3, FP8_E5M2, Fixed(4, 12)], ids=str)
@pytest.mark.parametrize("f", [0.01, 0.25, 0.5, 0.9])
def test_no_bias_in_sixteen_million_draws(fmt, f):
    gap = fmt.quantum(torch.tensor(1.0)).item()
    x = torch.tensor(1 + f * gap)
    f = (x.double().item() - 1) / gap
    ups = (stochastic_round(x.expand(DRAWS), fmt, seed=11) > 1).sum().item()
    z = (ups - DRAWS * f) / (DRAWS * f * (1 - f)) ** 0.5
    assert abs(z) < 5


def test_negative_numbers_have_the_same_odds():
    x = torch.tensor(-1 - 0.25 * 2**-12).expand(1 << 20)
    for fmt, gap in ((Fixed(4, 12), 2**-12), (BF16, 2**-7)):
        mean = stochastic_round(x, fmt, seed=2).double().mean().item()
        f = 0.25 * 2**-12 / gap
        assert abs(mean - x[0].item()) < 5 * gap * (f * (1 - f) / 2**20) ** 0.5


# -- the same anywhere ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [BF16, FP8_E4M3, Fixed(4, 12)], ids=str)
@pytest.mark.parametrize("compiled", [True, False])
def test_chunks_offsets_and_threads_change_nothing(fmt, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(module, "fastest", lambda device, n: None)
        monkeypatch.setattr(plain, "CHUNK", 1000)
    x = torch.randn(70_003)
    whole = stochastic_round(x, fmt, seed=9)
    for k in (1, 8, 513, 69_999):
        assert torch.equal(stochastic_round(x[k:], fmt, seed=9, offset=k), whole[k:])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(stochastic_round(x, fmt, seed=9), whole)
    finally:
        torch.set_num_threads(threads)
    assert not torch.equal(stochastic_round(x, fmt, seed=10), whole)


def test_a_view_is_numbered_by_its_own_rows():
    x = torch.randn(50, 60)
    assert torch.equal(stochastic_round(x.T, BF16, seed=1), stochastic_round(x.T.contiguous(), BF16, seed=1))
    strided = torch.empty(50, 120)[:, ::2]
    assert stochastic_round(x, BF16, seed=1, out=strided) is strided
    assert torch.equal(strided, stochastic_round(x, BF16, seed=1))


@pytest.mark.parametrize("fmt", [*FORMATS, Fixed(4, 4)], ids=str)
def test_results_are_written_where_they_are_wanted(fmt):
    x = torch.randn(999)
    expected = stochastic_round(x, fmt, seed=1)
    stored = torch.empty(999, dtype=fmt.dtype)
    assert torch.equal(decode(stochastic_round(x, fmt, seed=1, out=stored), fmt), expected)
    assert stochastic_round(x, fmt, seed=1, out=x) is x
    assert torch.equal(x, expected)


def test_the_global_generator_is_left_alone_and_no_gradient_passes():
    x, state = torch.randn(10, requires_grad=True), torch.get_rng_state()
    assert not stochastic_round(x, BF16, seed=1).requires_grad
    assert torch.equal(torch.get_rng_state(), state)
    assert stochastic_round(torch.empty(0), BF16, seed=1).shape == (0,)
    assert stochastic_round(torch.tensor(1.0), BF16, seed=1).shape == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seed": -1}, r"seed is -1; it is an integer from 0 to 2\^64 - 1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"seed": 0, "offset": -8}, r"offset is -8 for 4 elements; it is an integer from 0 to 2\^63 - 4"),
        ({"seed": 0, "offset": 2**63}, "offset is 9223372036854775808"),
        ({"seed": 0, "out": torch.empty(3)}, r"out is torch.float32 \(3,\) on cpu; for this x it has shape \(4,\)"),
        ({"seed": 0, "out": torch.empty(4, dtype=torch.float16)}, "has dtype torch.float32 or torch.bfloat16"),
    ],
)
def test_a_bad_place_is_refused_with_the_rule(arguments, words):
    with pytest.raises(ValueError, match=words):
        stochastic_round(torch.zeros(4), BF16, **arguments)


# -- the fused step ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [BF16, Fixed(4, 12)], ids=str)
@pytest.mark.parametrize("compiled", [True, False])
def test_the_fused_step_is_momentum_and_then_rounding(fmt, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr("hpcdl.numerics.rounding.sgd.fastest", lambda device, n: None)
    w = encode(round_nearest(torch.randn(70_001), fmt), fmt)
    g, v = torch.randn(70_001), torch.randn(70_001)
    velocity = v * 0.9 + g
    expected = stochastic_round(decode(w, fmt) - velocity * 0.01, fmt, seed=4, offset=3)
    sgd_step(w, g, v, fmt, lr=0.01, momentum=0.9, seed=4, offset=3)
    assert torch.equal(v, velocity)
    assert torch.equal(decode(w, fmt), expected)


def test_a_step_below_half_a_gap_moves_weights_on_average():
    w = encode(torch.ones(1 << 16), BF16)
    sgd_step(w, torch.full((1 << 16,), -1.0), torch.zeros(1 << 16), BF16, lr=2**-10, seed=1)
    moved = (w.float() > 1).double().mean().item()
    assert abs(moved - 2**-3) < 5 * (2**-3 / 2**16) ** 0.5


def test_a_step_on_unfit_tensors_is_refused():
    w, g = torch.zeros(4, dtype=torch.bfloat16), torch.zeros(4)
    with pytest.raises(ValueError, match=r"weights are kept in BF16 or in a Fixed of 9 to 16 bits"):
        sgd_step(w, g, g.clone(), FP16, lr=0.1, seed=0)
    with pytest.raises(ValueError, match=r"g is torch.float32 \(3,\) on cpu; for weights in BF16 it is torch.float32"):
        sgd_step(w, g[:3], g.clone(), BF16, lr=0.1, seed=0)
    with pytest.raises(ValueError, match=r"v has strides \(2,\)"):
        sgd_step(w, g, torch.zeros(8)[::2], BF16, lr=0.1, seed=0)
    with pytest.raises(ValueError, match="seed is -3"):
        sgd_step(w, g, g.clone(), BF16, lr=0.1, seed=-3)


@pytest.mark.parametrize("broken", [0, 5])  # a row of the caller's thread, and one of another
def test_what_is_raised_in_a_row_reaches_the_caller(broken):
    done = []

    def work(first, last):
        if first == broken:
            raise ValueError(f"row from {first}")
        done.append((first, last))

    with pytest.raises(ValueError, match=f"row from {broken}"):
        in_rows(work, n=10, rows=2)
    assert done == [(5 - broken, 10 - broken)]
