"""Alpha and beta come back from measurements that are noisy, repeated, and now and then far off."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcdl.cost.alpha_beta import fit, fit_collective
from hpcdl.cost.collectives import rabenseifner, ring

SIZES = [4 << k for k in range(0, 25, 2)]  # 4 B to 64 MB


def noisy(seconds, seed, noise=0.03, wrong=0.0):
    rng = np.random.default_rng(seed)
    seconds = np.asarray(seconds) * (1 + noise * np.abs(rng.standard_normal(len(seconds))))
    outliers = rng.random(len(seconds)) < wrong
    return np.where(outliers, seconds * rng.uniform(2, 50, len(seconds)), seconds)


@given(st.floats(-7, -2), st.floats(-12, -7))
@settings(max_examples=25, deadline=None)
def test_exact_measurements_give_back_alpha_and_beta(log_alpha, log_beta):
    alpha, beta = 10**log_alpha, 10**log_beta
    found = fit(SIZES, [alpha + n * beta for n in SIZES])
    assert found.error < 1e-6
    # A beta that never matters within 64 MB, or an alpha below the smallest beta term, cannot be seen.
    assert found.alpha == pytest.approx(alpha, rel=1e-4, abs=4e-6 * beta)
    assert found.beta == pytest.approx(beta, rel=1e-4, abs=1e-6 * alpha / SIZES[-1])


@pytest.mark.parametrize("seed", range(10))
def test_a_quarter_of_the_measurements_may_be_many_times_too_slow(seed):
    sizes = SIZES * 5
    found = fit(sizes, noisy([5e-6 + n * 1e-10 for n in sizes], seed, wrong=0.25))
    assert found.alpha == pytest.approx(5e-6, rel=0.1)
    assert found.beta == pytest.approx(1e-10, rel=0.1)
    assert found.error < 0.1


def test_least_squares_would_have_failed_there():
    sizes = np.array(SIZES * 5, dtype=float)
    times = noisy(5e-6 + sizes * 1e-10, 0, wrong=0.25)
    _, alpha = np.polyfit(sizes, times, 1)
    assert abs(alpha - 5e-6) > 10 * 5e-6


@pytest.mark.parametrize("cost", [ring, rabenseifner])
def test_links_are_fitted_to_collectives(cost):
    ranks, sizes = np.meshgrid([2, 3, 4], SIZES)
    ranks, sizes = ranks.ravel(), sizes.ravel()
    times = [cost(int(p), int(n), 2e-6, 3e-10) for p, n in zip(ranks, sizes, strict=True)]
    found = fit_collective(cost, ranks, sizes, noisy(times, 1, wrong=0.1))
    assert found.alpha == pytest.approx(2e-6, rel=0.1)
    assert found.beta == pytest.approx(3e-10, rel=0.1)


def test_neither_comes_out_negative():
    found = fit([1000, 2000, 3000], [3e-6, 2e-6, 1e-6])
    assert found.alpha >= 0
    assert found.beta >= 0


@pytest.mark.parametrize(
    ("nbytes", "seconds", "says"),
    [
        ([8, 8, 8], [1, 2, 3], "two sizes"),
        ([8, 16], [1.0], "seconds is a list of two numbers"),
        ([8, 16, 32], [1.0, 2.0], "seconds has 2 values and nbytes 3"),
        ([8, 16], [0.0, 1.0], "more than 0 seconds"),
        ([8, float("nan")], [1.0, 1.0], "nbytes is a list"),
        ([], [], "nbytes is a list"),
    ],
)
def test_measurements_that_cannot_tell_are_refused(nbytes, seconds, says):
    with pytest.raises(ValueError, match=says):
        fit(nbytes, seconds)
