"""Code that is the same except for names and layout has one fingerprint; short code has none; nothing breaks it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.inside import fingerprint

ONE = '''
def f(x, y):
    """What it does."""
    total = 0.0  # from zero
    for i in range(len(x)):
        if x[i] > y:
            total = total + x[i] * y - i
        else:
            total = total - x[i] ** 2
    return total / len(x)
'''
RENAMED = (
    ONE.replace("total", "acc")
    .replace('    """What it does."""\n', "")
    .replace("(x, y)", "(x: list, y: float) -> float")
)
OTHER = ONE.replace("** 2", "** 3")


def of(code):
    return fingerprint.of([("cell 1", code)], ("f",))


def test_names_comments_docstrings_and_annotations_make_no_difference():
    assert of(ONE) == of(RENAMED) != ""


def test_another_computation_makes_a_difference():
    assert of(ONE) != of(OTHER)


def test_names_that_are_used_differently_make_a_difference():
    assert of(ONE.replace("x[i] > y", "y > x[i]")) != of(ONE)


def test_other_code_in_the_notebook_makes_no_difference():
    assert fingerprint.of([("a", "import math"), ("b", ONE), ("c", "def g():\n    pass")], ("f",)) == of(ONE)


@pytest.mark.parametrize(
    "code", ["def f(x):\n    return x.mean()", "def f(x):\n    raise NotImplementedError", "def f(:", ""]
)
def test_short_blank_and_broken_code_has_none(code):
    assert of(code) == ""


def test_deep_nesting_has_none():
    assert of("def f(x):\n    return " + "-" * 50_000 + "x") == ""


@settings(deadline=None)
@given(st.text(max_size=80))
def test_nothing_that_is_written_raises(code):
    assert isinstance(of(code), str)
    assert shapes(code) == []


def shapes(code):
    return fingerprint.shapes([("cell 1", code)], ("f",))


def share(one, other):
    """Of the parts of `one` those that are in `other`, too."""
    one, other = Counter(shapes(one)), Counter(shapes(other))
    return (one & other).total() / one.total()


def test_shapes_stay_where_names_comments_and_annotations_change():
    assert shapes(ONE) == shapes(RENAMED) != []


def test_most_shapes_stay_where_a_statement_moves_or_a_constant_changes():
    moved = ONE.replace("    total = 0.0  # from zero\n", "").replace(
        "    return total", "    total = 0.0\n    return total"
    )
    assert 0.7 < share(moved, ONE) < 1
    assert 0.5 < share(OTHER, ONE) < 1


def test_another_computation_has_other_shapes():
    other = """
def f(x, y):
    below, above = x[x <= y], x[x > y]
    positions = torch.arange(len(x), dtype=x.dtype)[x > y]
    return (y * above.sum() - positions.sum() - (below * below).sum()) / x.numel()
"""
    assert share(other, ONE) < 0.2


@pytest.mark.parametrize("code", ["def f(x):\n    return x.mean()", "def f(:", ""])
def test_short_and_broken_code_has_no_shapes(code):
    assert shapes(code) == []
