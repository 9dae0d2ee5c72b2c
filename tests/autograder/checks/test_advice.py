"""The next step that a failed check names fits the value: code that runs, and a precision that the value has."""

import math
import re

import pytest
import torch

from autograder.checks import CheckFailure, close, equal, length, unchanged

ARGUMENTS = [
    (torch.ones(2), "Work on a copy (value.clone()) or make a new value."),
    ([1, 2], "Work on a copy (list(value)) or make a new one."),
    ({"t": 1}, "Work on a copy (dict(value)) or make a new one."),
    ([torch.ones(2)], "Make a new list of new tensors: list(value) alone would hold the same ones."),
    ({"m": torch.ones(2), "t": 1}, "Make a new dict of new tensors: dict(value) alone would hold the same ones."),
    (1.5, "Make a new value."),
]


@pytest.mark.parametrize(("before", "advice"), ARGUMENTS)
def test_advice_about_an_argument_runs(before, advice):
    with pytest.raises(CheckFailure) as failed:
        unchanged(None, before, name="value")
    assert failed.value.message == f"Your function changed its argument value. {advice}"
    for code in re.findall(r"(?:list|dict)\(value\)|value\.\w+\(\)", advice):
        assert type(eval(code, {"value": before})) is type(before)


def failure(got, expected, **options) -> CheckFailure:
    with pytest.raises(CheckFailure) as failed:
        close(got, expected, name="x", **options)
    return failed.value


def test_what_float32_has_rounded_is_named():
    for got in (torch.tensor(math.pi).item(), torch.tensor(math.pi)):
        assert "rounded to float32" in failure(got, math.pi, rtol=1e-9).mistake
    many = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    assert "rounded to float32" in failure(many.float().double(), many).mistake


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (math.pi * (1 + 1e-7), math.pi),  # near, but with more digits than float32 has
        (3.0, math.pi),  # few digits, and far
        (1.5, 1.5000001),  # near, and one of float32's numbers; the expected one is not
        (1.0, 2.0),
    ],
)
def test_what_float32_has_not_rounded_is_not(got, expected):
    said = failure(got, expected, rtol=1e-12).mistake
    assert bool(said) == (got == 1.5)  # a float32 result would look the same


def test_a_dtype_says_where_float32_comes_from():
    wanted, made = torch.ones(2, dtype=torch.float64), torch.ones(2)
    assert failure(made, wanted).message.endswith("as in dtype=x.dtype.")
    assert failure(made, wanted).mistake == ""
    assert failure(wanted, made).message == "x has dtype float64, expected float32."


F64 = torch.float64
WANTED = torch.tensor([1.5, 2.5, -3.0], dtype=F64)
ROWS = torch.tensor([[1.0, 0.0], [2.0, 3.0]], dtype=F64)


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        (torch.tensor([1.5, 0.0, 0.0], dtype=F64), WANTED, "look where `return` is"),
        (torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=F64), ROWS, "look where `return` is"),  # the first row
        (torch.ones(1, 0, dtype=F64), torch.ones(1, 3, dtype=F64), "A slice [a:-b] is empty"),
        (torch.tensor([True, False]), torch.tensor([1.0, -1.0]), "torch.where(condition"),
        ((-8.0) ** (1 / 3), 2.0, "take abs() of it"),
    ],
)
def test_a_usual_mistake_has_a_next_step(got, expected, said):
    assert said in str(failure(got, expected))


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ([1.0, 0.0, 0.0], [1.5, 2.5, 3.0]),  # the first is wrong, too
        ([1.5, 0.0, 1.0], [1.5, 2.5, 3.0]),  # a later one is computed
        ([1.5, 0.0, 0.0], [1.5, 0.0, 3.0]),  # a 0 is right: the loop may have gone on
        ([0.0, 0.0], [0.0, 1.0]),
        ([0.0], [1.0]),
    ],
)
def test_a_loop_is_not_blamed_for_other_zeros(got, expected):
    assert failure(torch.tensor(got), torch.tensor(expected)).mistake == ""


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        ([1], 3, "x has 1 item, expected 3. If a loop makes them"),
        ([1, 2], 3, "x has 2 items, expected 3."),
        ([], 1, "x has 0 items, expected 1."),
        ([1, 2], 1, "x has 2 items, expected 1."),
    ],
)
def test_a_length_is_said_with_its_next_step(got, expected, said):
    with pytest.raises(CheckFailure) as failed:
        length(got, expected, name="x")
    assert failed.value.message.startswith(said)
    assert ("loop" in failed.value.message) == ("loop" in said)
    length([0] * expected, expected, name="x")


def test_a_list_of_the_first_item_is_named():
    for got, is_first in (([1], True), ([2], False)):
        with pytest.raises(CheckFailure) as failed:
            equal(got, [1, 2, 3], name="x")
        assert failed.value.message.startswith("x has 1 item, expected 3.")
        assert ("look where `return` is" in failed.value.message) == is_first
