"""The name of an element can be read, whatever the value is called; and no sentence counts rounding to infinity."""

import math

import pytest
import torch

from autograder import show
from autograder.checks import CheckFailure, close, equal
from autograder.checks.elements import element

NAMES = [
    ("path", "path[1, 0]"),
    ("zs[0]", "zs[0][1, 0]"),
    ("f(x, h=0.25)", "f(x, h=0.25)[1, 0]"),
    ("f({'a: b': 1})", "f({'a: b': 1})[1, 0]"),
    ("p = 2, n_r = 3, 1: grads[0]", "p = 2, n_r = 3, 1: grads[0][1, 0]"),
    ("f(x) of x (3, 4)", "Element [1, 0] of f(x) of x (3, 4)"),
    ("f(a) of shape (3, 4), int64", "Element [1, 0] of f(a) of shape (3, 4), int64"),
    ("f(z) at z = [1000, 0]", "Element [1, 0] of f(z) at z = [1000, 0]"),
    ("T.T @ dy", "Element [1, 0] of T.T @ dy"),
    ("rho in overlap(edges)", "Element [1, 0] of rho in overlap(edges)"),
    ("p = 2: params[0] on rank 1", "p = 2: element [1, 0] of params[0] on rank 1"),
]


@pytest.mark.parametrize(("name", "said"), NAMES)
def test_an_element_of_anything(name, said):
    assert element(name, "[1, 0]") == said
    assert element(name, "") == name
    with pytest.raises(CheckFailure) as failed:
        close(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [3.0]]), name=name)
    assert failed.value.message == f"{said} is 2, expected 3."


def test_an_item_of_a_phrase():
    with pytest.raises(CheckFailure) as failed:
        equal([[1], [2]], [[1], [3]], name="the list of batches")
    assert failed.value.message == "Element [1][0] of the list of batches is 2, expected 3."


FIRST_ROUND = " If a loop makes them, look where `return` is: inside the loop it ends the first round."


@pytest.mark.parametrize(("got", "said"), [([], "0 items"), ([1], "1 item"), ([1, 2], "2 items")])
def test_one_item(got, said):
    with pytest.raises(CheckFailure) as failed:
        equal(got, [1, 2, 3], name="x")
    assert failed.value.message == f"x has {said}, expected 3.{FIRST_ROUND if len(got) == 1 else ''}"


@pytest.mark.parametrize("wanted", [math.inf, -math.inf, 1.0])
@pytest.mark.parametrize("given", [math.inf, math.nan, 0.0])
@pytest.mark.parametrize("atol", [None, 0.0])
def test_nothing_is_off_by_infinity(given, wanted, atol):
    if given != wanted:
        with pytest.raises(CheckFailure) as failed:
            close(torch.tensor([given, 2.0]), torch.tensor([wanted, 2.0]), name="x", atol=atol)
        assert not {"inf", "nan"} & set(failed.value.where.replace(".", " ").replace(";", " ").split())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int8])
def test_the_range_of_whole_numbers(dtype):
    assert show.show(torch.arange(20, dtype=dtype)).endswith("from 0 to 19")
