"""Difference quotients: their order, their limits, and the step that does best."""

import math

import pytest
import torch

from hpcdl.numerics.derivatives import RULES, central, forward, gradient


@pytest.mark.parametrize(("quotient", "order"), [(forward, 1), (central, 2)])
def test_halving_the_step_divides_the_error_by_two_to_the_order(quotient, order):
    errors = [abs(quotient(math.exp, 1.0, h) - math.e) for h in (0.02, 0.01)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.05)


def sine(x):
    return x.sin()


def measured(rule: str, h, dtype) -> torch.Tensor:
    x = torch.tensor(1.0, dtype=dtype)
    return (RULES[rule].quotient(sine, x, h.to(dtype)).double() - math.cos(1.0)).abs()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_errors_stay_below_truncation_and_rounding(rule, dtype):
    h = torch.logspace(-6 if dtype == torch.float32 else -12, -1, 200, dtype=torch.float64).to(dtype).double()
    bound = RULES[rule].truncation(sine, 1.0, h) + RULES[rule].rounding(sine, 1.0, h, dtype)
    ratio = measured(rule, h, dtype) / bound
    assert ratio.max() < 1.1
    assert (ratio > 0.2).float().mean() > 0.3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_best_step_is_where_the_measured_error_is_least_up_to_luck(rule, dtype):
    best = RULES[rule].best_step(sine, 1.0, dtype)
    around = measured(rule, best * torch.logspace(-0.1, 0.1, 30, dtype=torch.float64), dtype).square().mean()
    for factor in (0.01, 100.0):
        away = best * factor * torch.logspace(-0.1, 0.1, 30, dtype=torch.float64)
        assert measured(rule, away, dtype).square().mean() > 10 * around


def test_lab_01_quotes_the_best_errors_of_both_rules_rightly():
    """Near 1e-8 forward and 1e-11 central, for sin at 1 in float64."""
    h = torch.logspace(-12, -2, 2000, dtype=torch.float64)
    typical = {rule: measured(rule, h, torch.float64).unfold(0, 50, 50).square().mean(1).sqrt().min() for rule in RULES}
    assert -8.7 < math.log10(typical["forward"]) < -7.7
    assert -11.7 < math.log10(typical["central"]) < -10.7


def test_a_parabola_has_no_truncation_and_no_best_step():
    assert RULES["central"].best_step(lambda x: x * x, 1.0, torch.float64) == math.inf


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_the_measured_gradient_equals_autograd_in_any_shape(shape):
    x = torch.linspace(-1, 1, math.prod(shape), dtype=torch.float64).reshape(shape).requires_grad_()

    def f(x):
        return (x.sin() * x.exp()).sum()

    f(x).backward()
    before = x.detach().clone()
    torch.testing.assert_close(gradient(f, before), x.grad, rtol=1e-8, atol=1e-9)
    assert torch.equal(before, x.detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_a_gradient_that_differences_cannot_measure_is_refused(dtype):
    with pytest.raises(TypeError, match=rf"x is in {dtype}.*x\.double\(\)"):
        gradient(lambda x: (x**2).sum(), torch.tensor([1, 2, 300]).to(dtype))


def test_the_gradient_of_a_transposed_tensor_is_measured():
    x = torch.arange(6.0, dtype=torch.float64).view(2, 3).T
    torch.testing.assert_close(gradient(lambda x: (x**2).sum(), x), 2 * x, rtol=1e-8, atol=1e-9)
