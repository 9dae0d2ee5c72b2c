"""Every entry of the zoo under every wrapper: equal to one process, or refused by the sentence in docs/support.md."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from zoo import page
from zoo.outcomes import RIGHT, outcome
from zoo.page import CASES
from zoo.registry import ENTRIES

pytestmark = [
    # torch.func compiles with what torch itself has deprecated, in the first process that asks.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    # torch.compile warns of what it leaves to Python (the simulated machine), and of tensors that it looks at itself.
    pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
    # Gradients by hand, backward from outputs, and weights picked from a vector: right, and not to be checked.
    pytest.mark.filterwarnings("ignore:the loss cannot be checked"),
    # A pipeline that recomputes runs a reentrant checkpoint without gradients first.
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True"),
]

OF_SEVERAL = (
    "than rank",
    "on other ranks",
    "ranks have other",
    "ranks have called",
    "ranks have taken",
    "the ranks' losses",
    "a split layer; take",
)  # one rank is right


def ids(case):
    return "-".join(case)


def compare(case, p):
    stated, found = page.read().get(case), outcome(*case, p)
    alone = p == 1 and any(said in stated for said in OF_SEVERAL)
    if p == 1 and case[1] in ("tensor parallel", "pipeline"):  # the rank has whole layers, and all
        alone |= any(said in stated for said in ("this rank", "cannot be tried"))
    if p == 1 and "this rank's samples only" in stated:  # those are all: it may be right before it is averaged
        alone |= found == RIGHT
    assert found == (RIGHT if alone else stated), "run `python tests/zoo/page.py` if the new outcome is intended"


@pytest.mark.thinned(20, 10)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_entry_on_two_ranks(case):
    compare(case, 2)


@pytest.mark.labs  # the same on other numbers of ranks
@pytest.mark.thinned(1, 16)
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_entry_on_one_or_three_ranks(case, p):
    compare(case, p)


def test_the_zoo_has_at_least_80_entries():
    assert len(ENTRIES) >= 80


def test_the_page_has_every_cell():
    assert set(page.read()) == set(CASES)
