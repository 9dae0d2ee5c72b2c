"""Dual numbers against torch's autograd, for first and higher derivatives."""

import math
import operator
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcdl.numerics.dual import Dual, derivatives, partials

FORMULAS = {
    "polynomial": lambda x: 3 * x**3 - x * x / 4 + 2 - x,
    "constants on the left": lambda x: 1 - 2 / (3 + x * x),
    "exp log sin cos": lambda x: (x.exp() + 1).log() * x.sin() - (2 * x).cos(),
    "powers": lambda x: (x * x + 1) ** 0.5 + 2**x - (x + 5) ** -2,
    "logistic": lambda x: 1 / (1 + (-x).exp()),
    "absolute value": lambda x: x.abs() * x,
}


def by_autograd(f, x: float, order: int) -> list[float]:
    x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    found = [f(x)]
    for _ in range(order):
        found.append(torch.autograd.grad(found[-1], x, create_graph=True)[0])
    return [d.item() for d in found]


@pytest.mark.parametrize("name", FORMULAS)
@given(x=st.floats(-2, 2).filter(lambda x: abs(x) > 1e-3))
@settings(max_examples=30, deadline=None)
def test_value_and_slope_equal_autograd(name, x):
    f = FORMULAS[name]
    got = [float(d) for d in derivatives(f, torch.tensor(x, dtype=torch.float64))]
    assert got == pytest.approx(by_autograd(f, x, 1), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("x", [-1.3, 0.4, 1.7])
def test_nested_duals_give_the_first_three_derivatives(name, x):
    got = [float(d) for d in derivatives(FORMULAS[name], torch.tensor(x, dtype=torch.float64), 3)]
    assert got == pytest.approx(by_autograd(FORMULAS[name], x, 3), rel=1e-11, abs=1e-11)


def test_plain_numbers_and_tensors_of_many_points_do_as_well():
    f = FORMULAS["exp log sin cos"]
    points = torch.linspace(-1, 1, 7, dtype=torch.float64)
    one_by_one = [derivatives(f, x)[1] for x in points.tolist()]
    torch.testing.assert_close(derivatives(f, points)[1], torch.tensor(one_by_one, dtype=torch.float64))


def test_a_constant_function_has_derivatives_zero():
    assert derivatives(lambda x: 5.0, 3.0, 2) == [5.0, 0.0, 0.0]


def test_the_first_power_and_the_zeroth_have_slopes_at_zero():
    assert [(Dual(0.0, 1.0) ** n).slope for n in (0, 1, 2)] == [0.0, 1.0, 0.0]


def test_the_absolute_value_has_no_slope_at_zero():
    value, slope = derivatives(lambda x: x.abs(), torch.tensor(0.0))
    assert value == 0.0
    assert math.isnan(slope)


def test_partial_derivatives_of_the_lectures_example():
    assert partials(lambda x, y: x * x + x * y + y * y, 1.0, -0.5) == [1.5, 0.0]


def test_operands_stay_as_they_were():
    x, y = Dual(2.0, 1.0), Dual(3.0, -1.0)
    for _ in (x + y, x - y, x * y, x / y, x**2, -x, 1 - x, 1 / x, 2**x):
        assert (x.value, x.slope, y.value, y.slope) == (2.0, 1.0, 3.0, -1.0)


def test_a_function_that_is_differentiated_may_differentiate_inside():
    """The ε of the one is a number to the other (Siskind and Pearlmutter, "Nesting forward-mode AD", 2008)."""
    assert derivatives(lambda x: x * derivatives(lambda y: x + y, 1.0)[1], 1.0) == [1.0, 1.0]
    assert partials(lambda x: partials(lambda y: x * y * y, 3.0)[0], 2.0) == [6.0]
    inner = lambda x: derivatives(lambda y: x * y**3, x, 2)[2]  # 6 x^2  # noqa: E731
    assert derivatives(inner, 2.0, 2) == [24.0, 24.0, 12.0]


@pytest.mark.parametrize("x", [0.3, 1.0, 2.5])
def test_a_power_may_have_a_variable_in_its_exponent(x):
    f = lambda x: x ** (2 * x)  # noqa: E731
    assert [float(d) for d in derivatives(f, x, 2)] == pytest.approx(by_autograd(f, x, 2), rel=1e-12)
    assert partials(lambda x, y: x**y, 2.0, 3.0) == pytest.approx([12.0, 8 * math.log(2.0)])


@pytest.mark.parametrize("x", [3.0, 0.0, -2.0, torch.tensor(3.0, dtype=torch.float64)])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
def test_a_branch_is_the_one_of_the_number(compare, order, x):
    """A comparison by identity would say that no Dual is 3."""
    f = lambda x: x * x * x if compare(x, 3) else 5 * x  # noqa: E731
    assert derivatives(f, x, order) == derivatives(
        (lambda x: x * x * x) if compare(x, 3) else (lambda x: 5 * x), x, order
    )
    swapped = lambda x: x * x if compare(0.0, x) else -x  # noqa: E731
    assert derivatives(swapped, x) == derivatives((lambda x: x * x) if compare(0.0, x) else (lambda x: -x), x)


def test_truth_and_size():
    assert derivatives(lambda x: 1 / x if x else 7 * x, 0.0) == [0.0, 7.0]
    assert derivatives(abs, -3.0, 2) == [3.0, -1.0, 0.0]
    assert derivatives(lambda x: max(x * x, x), 3.0) == [9.0, 6.0]


def test_branches_in_nested_derivatives():
    inner = lambda x: derivatives(lambda y: y * y * x if y > x else y, 3.0)[1]  # noqa: E731
    assert derivatives(inner, 2.0) == [12.0, 6.0]
    assert derivatives(inner, 4.0) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (lambda x: [x, x * x], "a list"),
        (lambda x: (x, x), "a tuple"),
        (lambda x: {"y": x}, "a dict"),
        (lambda x: None, "a NoneType"),
        (lambda x: np.array([1.0, 2.0]) * x, "an array of objects"),
        (lambda x: np.array([x, x]), "an array of objects"),
    ],
)
def test_results_whose_slope_would_be_lost(result, kind):
    for differentiate in (lambda: derivatives(result, 2.0), lambda: partials(result, 2.0)):
        with pytest.raises(TypeError, match=f"f returned {kind}"):
            differentiate()


@pytest.mark.parametrize("c", [2, 2.0, np.float64(2), np.int64(2), np.float32(2), Fraction(2), torch.tensor(2.0)])
def test_numbers_of_any_kind(c):
    rows = [
        (lambda x: c * x, 6, 2),
        (lambda x: x * c, 6, 2),
        (lambda x: c - x, -1, -1),
        (lambda x: x - c, 1, 1),
        (lambda x: x**c, 9, 6),
        (lambda x: c / x, 2 / 3, -2 / 9),
        (lambda x: c + 0 * x, 2, 0),
    ]
    for f, value, slope in rows:
        assert [float(y) for y in derivatives(f, 3.0)] == pytest.approx([value, slope], rel=1e-6)


def test_orders_below_zero():
    with pytest.raises(ValueError, match="order is -1"):
        derivatives(lambda x: x, 1.0, -1)
