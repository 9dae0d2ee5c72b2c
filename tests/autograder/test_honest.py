"""Right answers in other styles lose nothing: they have full points, no flag, and no mistake is named.

`honest/SLUG.py` answers the exercises of a lab as students do who think in loops, matrices, classes, recursion, NumPy.
Each of its cells, `# %% exercise: style`, replaces the reference's answer; what that builds on is the
reference's.
"""

import re
from functools import cache
from pathlib import Path

import pytest
import torch

from autograder import exercises
from autograder.authors import build
from autograder.grading import run, selfcheck
from autograder.grading.grade import grade_notebook
from autograder.grading.seeds import seeds
from autograder.inside import magics, source
from autograder.inside.notebook import Notebook
from autograder.sessions.local import LocalSession

pytestmark = pytest.mark.filterwarnings("ignore")  # a student's code may warn

CELL = re.compile(r"^# %% (\w+): (.+)\n", re.MULTILINE)
LEAST = 3  # answers to each exercise, in the mean of a lab


def corpus(slug: str) -> Path:
    return Path(__file__).parent / "honest" / f"{slug}.py"


@cache
def answers(slug: str) -> list[tuple[str, str, str]]:
    """The answers to a lab: (exercise, style, code); none if its file is missing, which a test reports."""
    if not corpus(slug).exists():
        return []
    _, *parts = CELL.split(corpus(slug).read_text(encoding="utf-8"))
    return list(zip(parts[0::3], parts[1::3], parts[2::3], strict=True))


@cache
def solved(slug: str) -> list[tuple[str, str]]:
    """The cells of the lab with the reference's answers."""
    return [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]


CASES = [
    pytest.param(slug, name, code, id=f"{slug}-{name}: {style}")
    for slug in exercises.LABS
    for name, style, code in answers(slug)
]


@pytest.fixture(autouse=True)
def one_thread():
    """The labs' first cells ask for one: on a crowded machine two of them wait for each other, for ages."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("slug", exercises.LABS)
def test_each_exercise_is_answered_in_several_styles(slug):
    assert corpus(slug).exists(), (
        f"write {corpus(slug)}: right answers in other styles, as `autograder new` writes them"
    )
    styles = [(name, style) for name, style, _ in answers(slug)]
    names = set(exercises.load(slug).exercises)
    assert len(set(styles)) == len(styles) >= min(20, LEAST * len(names))
    assert {name for name, _ in styles} == names


@pytest.mark.each_lab("perceptron")
@pytest.mark.thinned(1, 6)
@pytest.mark.parametrize(("slug", "name", "code"), CASES)
def test_it_loses_nothing_in_a_notebook(slug, name, code):
    exercise, namespace = exercises.load(slug).exercises[name], {}
    for label, statement in source.needed([*solved(slug), (name, code)], list(exercise.functions))[0]:
        exec(compile(statement, label, "exec"), namespace)
    nothing_is_lost(run.run_exercise(exercise, LocalSession(namespace), seeds(selfcheck.SECRET, "honest")))


@pytest.mark.each_lab("perceptron", turn=(1, 6))
@pytest.mark.parametrize("which", [pytest.param(0, id="first", marks=pytest.mark.long), pytest.param(-1, id="last")])
@pytest.mark.parametrize("slug", exercises.LABS)
def test_it_loses_nothing_when_graded(slug, which, zygote):
    names = exercises.load(slug).exercises
    chosen = [(name, [code for n, _, code in answers(slug) if n == name][which]) for name in names]
    content = Notebook([*solved(slug), *chosen], [])
    result = grade_notebook(content, exercises.load(slug), zygote, "honest", selfcheck.SECRET)
    assert [
        note for note in result.notes if "the last one" not in note
    ] == []  # after the reference's, which it replaces
    for exercise in result.exercises:
        nothing_is_lost(exercise)


def nothing_is_lost(result) -> None:
    lost = [(c.name, c.status, c.kind, c.message, c.why, c.mistake, c.detail) for c in result.checks if not c.passed]
    named = [(c.name, c.mistake) for c in result.checks if c.mistake]
    assert (lost, named, result.forbidden) == ([], [], [])
    assert result.points == result.max_points
