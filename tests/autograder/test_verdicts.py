"""Answers whose verdict was wrong once: right ones have full points, wrong ones fail in the check that is named.

`verdicts/SLUG.py` has a cell for each: `# %% exercise: answer -> full points`, or `-> the check that fails first`.
A cell may define several functions; what else it needs is the reference's.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading import run, selfcheck
from autograder.grading.seeds import seeds
from autograder.inside import magics, source
from autograder.sessions.local import LocalSession

pytestmark = pytest.mark.filterwarnings("ignore")  # a student's code may warn

CELL = re.compile(r"^# %% (\w+): (.+) -> (.+)\n", re.MULTILINE)
FOLDER = Path(__file__).parent / "verdicts"


@cache
def solved(slug: str) -> list[tuple[str, str]]:
    """The cells of the lab with the reference's answers."""
    return [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]


def cells(slug: str) -> list[tuple[str, str, str, str]]:
    """(exercise, answer, verdict, code)."""
    _, *parts = CELL.split((FOLDER / f"{slug}.py").read_text(encoding="utf-8"))
    return list(zip(parts[0::4], parts[1::4], parts[2::4], parts[3::4], strict=True))


CASES = [
    pytest.param(path.stem, name, verdict, code, id=f"{path.stem}-{name}: {answer}")
    for path in sorted(FOLDER.glob("*.py"))
    for name, answer, verdict, code in cells(path.stem)
]


@pytest.mark.each_lab("tensors")
@pytest.mark.thinned(1, 2)
@pytest.mark.parametrize(("slug", "name", "verdict", "code"), CASES)
def test_each_has_its_verdict(slug, name, verdict, code):
    exercise, namespace = exercises.load(slug).exercises[name], {}
    for label, statement in source.needed([*solved(slug), (name, code)], list(exercise.functions))[0]:
        exec(compile(statement, label, "exec"), namespace)
    result = run.run_exercise(exercise, LocalSession(namespace), seeds(selfcheck.SECRET, "verdicts"))
    failed = [(check.name, check.mistake or check.message) for check in result.checks if check.status == "failed"]
    if verdict == "full points":
        assert failed == []
    else:
        assert failed[0][0] == verdict, failed
        assert len(failed[0][1]) > 20, "the sentence names the mistake"
