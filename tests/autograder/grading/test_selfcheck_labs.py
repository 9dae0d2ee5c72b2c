"""Every lab's checks are checked: reference 100, blank 0, each wrong answer of the bank loses exactly its own."""

import pytest

from autograder import exercises
from autograder.grading import selfcheck
from autograder.walls.zygote import Zygote

LAZY = 12  # lazy answers to each exercise; test_lazy.py asks for all of them


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as zygote:
        yield zygote


@pytest.mark.timeout(900)  # a bank of sixty wrong answers, each with ranks of its own
@pytest.mark.each_lab("gradient_descent")
@pytest.mark.parametrize("slug", exercises.LABS)
def test_the_reference_the_blank_and_every_wrong_answer_get_what_they_deserve(slug, zygote):
    findings = list(selfcheck.selfcheck(slug, zygote, LAZY))
    wrong = {finding.title: finding.problems for finding in findings if finding.problems}
    assert not wrong
    names = exercises.load(slug).exercises
    assert len(selfcheck.bank(slug)) >= min(7, 3 * len(names)), "a bank holds the mistakes that students make"
