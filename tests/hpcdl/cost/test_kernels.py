"""Kernels: tiles, waves, bytes and launches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcdl.cost.kernels import FILL, Kernels, Product, pass_seconds, product_seconds

A100 = Kernels(rate=250e12, bandwidth=1.4e12, processors=108, launch=1e-5, gap=2e-6)
sizes = st.integers(1, 20_000)


@given(sizes, sizes, sizes, st.integers(1, 64))
@settings(max_examples=40, deadline=None)
def test_no_product_beats_the_roofline(m, n, k, times):
    product = Product(m, n, k, times)
    nbytes = 2 * times * (m * k + k * n + m * n)
    assert product_seconds(product, A100) >= max(product.flops / A100.rate, nbytes / A100.bandwidth) * (1 - 1e-12)


@given(sizes, sizes, sizes)
@settings(max_examples=60, deadline=None)
def test_a_larger_product_is_not_faster(m, n, k):
    """Rounding to tiles may make it as slow, not slower than the next full tile."""
    here = product_seconds(Product(m, n, k), A100)
    assert product_seconds(Product(m + 256, n, k), A100) >= here * (1 - 1e-12)
    assert product_seconds(Product(m, n + 256, k), A100) >= here * (1 - 1e-12)


def test_large_products_reach_the_rate_and_small_ones_do_not():
    def share(n):
        product = Product(n, n, n)
        return product.flops / product_seconds(product, A100) / A100.rate

    assert share(16_384) > 0.95
    assert share(1024) < 0.75
    assert share(256) < 0.2


def test_one_tile_more_than_a_wave_takes_a_wave_more():
    device = Kernels(1e12, 1e30, processors=4)
    full, more = (product_seconds(Product(256 * tiles, 128, 1 << 20), device) for tiles in (4, 5))
    assert full == pytest.approx(2 * 256 * 128 * ((1 << 20) + FILL) / (1e12 / 4))
    assert 1.2 < more / full <= 2


def test_the_gradient_of_few_weights_is_split():
    """Six tiles of 256 x 128 leave most processors idle, unless the inner dimension is cut, too."""
    product = Product(768, 256, 12_288)
    assert product.flops / product_seconds(product, A100) > 0.3 * A100.rate


def test_few_rows_are_bound_by_memory():
    product = Product(16, 16_384, 4096)
    nbytes = 2 * (16 * 4096 + 4096 * 16_384 + 16 * 16_384)
    assert product_seconds(product, A100) == pytest.approx(nbytes / A100.bandwidth, rel=0.3)


def test_one_processor_has_no_tiles():
    device = Kernels(1e12, 1e30)
    assert product_seconds(Product(10, 20, 30), device) == 2 * 10 * 20 * 30 / 1e12


def test_many_small_kernels_are_bound_by_their_launches():
    assert pass_seconds([], 1000.0, 50, A100) == pytest.approx(50 * 1e-5)
    assert pass_seconds([], 1.4e12, 50, A100) == pytest.approx(1 + 50 * 2e-6)
