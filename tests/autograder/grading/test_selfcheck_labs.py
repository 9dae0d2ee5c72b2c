"""Every lab's checks are checked: reference 100, blank 0, each wrong answer loses exactly its own."""

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading import selfcheck
from autograder.grading.grade import grade_notebook
from autograder.inside.notebook import Notebook
from autograder.walls.zygote import Zygote


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as zygote:
        yield zygote


@pytest.mark.timeout(300)
@pytest.mark.each_lab("perceptron")
@pytest.mark.parametrize("slug", exercises.LABS)
def test_the_reference_has_all_points(slug, zygote):
    """No guard accuses a right answer: not what torch calls for it, nor what another exercise has imported."""
    lab = exercises.load(slug)
    result = grade_notebook(Notebook(selfcheck.cells_of(build.solved(slug)), []), lab, zygote, "x", selfcheck.SECRET)
    assert {found.name: (found.points, found.forbidden) for found in result.exercises} == {
        name: (exercise.points, []) for name, exercise in lab.exercises.items()
    }


@pytest.mark.timeout(900)  # thirty wrong answers, each with ranks of its own
@pytest.mark.each_lab("tensors", turn=(0, 6))
@pytest.mark.parametrize("slug", exercises.LABS)
def test_answers_get_what_they_deserve(slug, zygote):
    assert wrong(slug, zygote, each=8, sample=4) == {}
    names = exercises.load(slug).exercises
    assert len(selfcheck.bank(slug)) >= min(7, 3 * len(names)), "a bank holds the mistakes that students make"


@pytest.mark.long  # a bank of sixty wrong answers
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("slug", exercises.LABS)
def test_all_answers_get_what_they_deserve(slug, zygote):
    assert wrong(slug, zygote, each=1, sample=selfcheck.LAZY) == {}


def wrong(slug, zygote, each, sample):
    proofs = selfcheck.selfcheck(slug, zygote, sample, each)
    return {proof.title: proof.problems for proof in proofs if proof.problems}
