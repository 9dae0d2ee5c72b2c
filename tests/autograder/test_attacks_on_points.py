"""What `attacks/*.py` try gains nothing, and is flagged where it says so."""

import re
from pathlib import Path

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading import selfcheck
from autograder.grading.grade import grade_notebook
from autograder.inside import magics
from autograder.inside.notebook import Notebook
from autograder.walls import sandbox

ATTACKS = sorted(Path(__file__).with_name("attacks").glob("*.py"))
HEADER = re.compile(r"# (\w+)\.(\w+): ([\d.]+) points(, flagged)?(, long)?\n")
CASES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.long] if ", long\n" in path.read_text("utf-8") else [])
    for path in ATTACKS
]
pytestmark = [
    pytest.mark.labs,  # test_sentry.py tries the ways one by one in the first tier
    pytest.mark.skipif(sandbox.tier() == "weak", reason="this system has no sandbox"),
]


@pytest.mark.parametrize("path", CASES)
def test_an_attack_gains_nothing(path, zygote):
    text = path.read_text(encoding="utf-8")
    slug, name, most, flagged, _ = HEADER.match(text).groups()
    own = build.references(slug)[name].strip()  # the solution of this exercise is left out
    solved = [code for code in build.code(slug) if code.strip() != own]
    cells = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(solved)]
    lab = exercises.load(slug)
    part = selfcheck.reached(lab, [*cells, (selfcheck.WRONG, text)])
    part.exercises = {name: lab.exercises[name]}
    result = grade_notebook(Notebook([*cells, (path.stem, text)], []), part, zygote, "attack", selfcheck.SECRET)
    (found,) = result.exercises
    shown = result.notes, [(c.name, c.status, c.kind, c.message, c.got) for c in found.checks]
    assert found.points <= float(most), shown
    assert found.forbidden or not flagged, shown
