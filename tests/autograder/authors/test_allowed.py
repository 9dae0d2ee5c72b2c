"""What of hpcdl stays open is derived from the lab's source, by the names that things have where they are defined."""

import pytest

from autograder import exercises
from autograder.authors import allowed, build
from autograder.inside import magics, source


@pytest.mark.parametrize("slug", exercises.LABS)
def test_the_files_are_up_to_date(slug):
    made = allowed.text(exercises.load(slug), build.code(slug))
    assert allowed.path(slug).read_text(encoding="utf-8") == made, "run `make labs`"


@pytest.mark.parametrize("slug", exercises.LABS)
def test_no_answer_needs_engines(slug):
    """What grading runs of a lab, apart from its answers, draws nothing and starts no engine and no process."""
    names = {name for found in allowed.allowed(exercises.load(slug), build.code(slug)).values() for name in found}
    assert not [name for name in names if name.startswith(("hpcdl.cluster", "hpcdl.widgets"))]
    cells = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]
    statements, _ = source.needed(cells, exercises.load(slug).functions)
    assert not [code for _, code in statements if "subprocess" in code]


def test_names_are_found_behind_aliases_modules_and_attributes():
    program = """
import hpcdl.nn.mlp as layers
from hpcdl import collectives as c
from hpcdl.numerics import rounding
from hpcdl.nn.value import Value

layers.sigma(c.reduce(1, 2).sum(rounding.FP16.max))
"""
    assert allowed.used(program) == {"hpcdl.nn.mlp.sigma", "hpcdl.collectives.reduce.reduce"}
    assert allowed.used(program, ["Value"]) - allowed.used(program) == {"hpcdl.nn.value.Value"}


def test_what_is_imported_and_not_used_stays_closed():
    assert allowed.used("from hpcdl.collectives import reduce, ring_all_reduce\nreduce(1, 2)") == {
        "hpcdl.collectives.reduce.reduce"
    }
