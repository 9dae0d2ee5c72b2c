"""A failed check says exactly what is wrong, at the first broken rung, and names a mistake it knows."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autograder import checks, show
from autograder.boundary.protocol import Foreign
from autograder.checks import CheckFailure


def failure(check, *args, **kwargs) -> CheckFailure:
    with pytest.raises(CheckFailure) as caught:
        check(*args, **kwargs)
    return caught.value


ones = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (None, "g is None, expected a torch.Tensor. Does every path of the function end in `return`?"),
        (Foreign("numpy.ndarray"), "g is a numpy.ndarray, expected a torch.Tensor. Wrap it: torch.as_tensor(...)."),
        ([1.0], "g is a list, expected a torch.Tensor."),
        (ones.T, "g has shape (3, 2), expected (2, 3)."),
        (ones.double(), "g has dtype float64, expected float32."),
        (ones.index_fill(1, torch.tensor([2]), math.nan), "g[0, 2] is nan, expected a finite number."),
        (ones * 2, "g[0, 0] is 2, expected 1."),
    ],
)
def test_the_ladder_stops_at_the_first_broken_rung(got, message):
    assert failure(checks.close, got, ones, name="g").message == message


@pytest.mark.parametrize(
    ("got", "expected", "message"),
    [
        (10**400, 1.0, "g is an int of 1329 bits, expected 1."),
        (Fraction(10**400, 3), 1.0, "g is a Fraction, expected a number."),
        (math.inf, torch.tensor(3), "g is inf, expected 3."),
        (1.5, torch.tensor(1), "g is 1.5, expected 1."),
        (2, torch.tensor(True), "g is 2, expected True."),
    ],
)
def test_numbers_that_no_tensor_holds(got, expected, message):
    assert failure(checks.close, got, expected, name="g").message == message


def test_float8_is_finite_or_not():
    """torch has no isfinite for it."""
    float8 = torch.ones(2).to(torch.float8_e4m3fn)
    checks.tensor(float8, name="g")
    nan = torch.full((2,), math.nan).to(torch.float8_e4m3fn)
    assert failure(checks.tensor, nan, name="g").message == "g[0] is nan, expected a finite number."


def test_alike_in_any_dtype():
    assert checks.alike(ones.to(torch.int64), ones)
    assert not checks.alike(ones.T, ones)
    assert not checks.alike([1.0], ones)


def test_the_worst_element_is_named_with_error_and_tolerance():
    got = ones.clone()
    got[1, 2], got[0, 0] = 1.5, 1.1
    found = failure(checks.close, got, ones, name="g", why="because")
    assert found.message == "g[1, 2] is 1.5, expected 1."
    assert found.where == "Off by 0.5; rounding explains 4e-05. 2 of 6 elements differ; this one most."
    assert found.why == "because"


def test_a_known_mistake_is_named_even_where_an_earlier_rung_breaks():
    mistakes = {"You forgot the last row.": ones[:1], "You took the sum.": lambda: ones.sum(0)}
    assert failure(checks.close, ones[:1], ones, name="g", mistakes=mistakes).mistake == "You forgot the last row."
    assert failure(checks.close, 2 * ones[0], ones, name="g", mistakes=mistakes).mistake == "You took the sum."
    assert failure(checks.close, ones + 7, ones, name="g", mistakes=mistakes).mistake == ""


def test_a_mistake_that_gives_the_right_values_is_not_named():
    """Only the dtype is wrong, and for these inputs a known mistake happens to be right."""
    found = failure(checks.close, ones.double(), ones, name="g", mistakes={"You squared them.": ones**2})
    assert found.message == "g has dtype float64, expected float32."
    assert found.mistake == ""


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rounding_passes_and_lower_precision_does_not(dtype):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(200, 200, generator=generator, dtype=torch.float64) for _ in range(2))
    exact = a @ b
    checks.close((a.to(dtype) @ b.to(dtype)), exact.to(dtype), name="a @ b", atol=1e-2 if dtype.itemsize == 2 else None)
    if dtype == torch.float64:
        failure(checks.close, (a.float() @ b.float()).double(), exact, name="a @ b")


def test_a_number_may_come_as_a_float_or_a_tensor_of_no_dimension():
    checks.close(3.0, 3.0, name="loss")
    checks.close(torch.tensor(3.0), 3.0, name="loss")
    checks.close(3.0, torch.tensor(3.0), name="loss")
    assert "has shape (1,)" in failure(checks.close, torch.tensor([3.0]), 3.0, name="loss").message
    assert "a bool" in failure(checks.close, True, 1.0, name="loss").message


def test_infinities_and_nan_agree_with_themselves_only():
    special = torch.tensor([math.inf, -math.inf, math.nan, 1.0])
    checks.close(special.clone(), special, name="x")
    assert failure(checks.close, special.flip(0), special, name="x").message.startswith("x[")
    failure(checks.close, torch.tensor([1.0]), torch.tensor([math.inf]), name="x")


def test_digits_are_as_many_as_it_takes_to_see_the_difference():
    found = failure(checks.close, 1.00000012, 1.0, name="x", rtol=1e-12)
    assert found.message == "x is 1.0000001, expected 1."


def test_exact_comparison_tells_types_apart_and_finds_the_place():
    assert failure(checks.equal, [1, (2, True)], [1, (2, 1)], name="b").message == "b[1][1] is a bool, expected an int."
    assert failure(checks.equal, [1, 2], [1, 2, 3], name="b").message == "b has 2 items, expected 3."
    assert failure(checks.equal, {"m": 1}, {"m": 2}, name="s").message == "s['m'] is 1, expected 2."
    checks.equal([torch.arange(3), None, math.nan], [torch.arange(3), None, math.nan], name="b")
    assert failure(checks.equal, 1, 2, name="n", mistakes={"One too few.": 1}).mistake == "One too few."


def test_a_foreign_object_equals_nothing_not_even_itself():
    thing = Foreign("Always")
    assert not checks.same(thing, thing)
    with pytest.raises(TypeError, match="needs a bool"):
        checks.that(thing, "...")


def test_a_changed_argument_is_named():
    w = torch.ones(2)
    checks.unchanged(w, w.clone(), name="w")
    assert failure(checks.unchanged, w * 2, w, name="w").message.startswith("Your function changed its argument w.")


@given(st.recursive(st.none() | st.floats() | st.integers() | st.text(), lambda x: st.lists(x) | st.tuples(x, x)))
def test_any_value_is_shown_in_one_short_line(value):
    text = show.show(value)
    assert len(text) <= show.WIDTH
    assert "\n" not in text


def test_a_big_tensor_is_summarised():
    text = show.show(torch.arange(1e6).reshape(1000, 1000))
    assert text == "tensor of shape (1000, 1000), float32: [0., 1., 2., 3., …] from 0. to 999999."
    assert show.show(torch.empty(0, 3)) == "tensor([], float32)"


@pytest.mark.parametrize(
    ("value", "right"),
    [(3, True), (Fraction(-1, 2), True), (0.5, False), (True, False), (2**1000, False), (Fraction(1, 3**700), False)],
)
def test_only_short_exact_numbers_are_computed_with(value, right):
    assert checks.is_exact(value) is right


def test_duplicates_of_many_items_are_counted_once():
    assert checks.duplicates([3, 1, 2, 1, 3]) == [1, 3]
    assert checks.duplicates([*range(300_000), 7]) == [7]


@pytest.mark.parametrize(
    ("got", "expected", "where"),
    [
        (61568, 101504, "Off by 39,936."),
        (torch.tensor([3, 4]), torch.tensor([3, 2]), "Off by 2. 1 of 2 elements differ; this one most."),
        (torch.tensor([True]), torch.tensor([False]), "Off by 1."),
        (4.0, 3, "Off by 1; rounding explains 6e-06."),
        (torch.tensor(4.0), torch.tensor(3.0), "Off by 1; rounding explains 0.00012."),
    ],
)
def test_whole_numbers_are_off_by_a_whole_number_and_not_by_rounding(got, expected, where):
    with pytest.raises(CheckFailure) as found:
        checks.close(got, expected, name="x")
    assert found.value.where == where
