"""Right answers keep their points on a crowded machine, however many lanes there are."""

import os
import subprocess
import sys

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading import batch
from autograder.grading.submission import Submission

TIGHT = ("gradient_descent", "backprop")  # a check of each hands the answer a function, called hundreds of times
LOOPS = int(os.environ.get("HPCDL_LOOPS", "20"))
SECONDS = 1200  # after which a loop ends by itself
LOOP = f"import time\nend = time.monotonic() + {SECONDS}\nwhile time.monotonic() < end:\n    pass"
pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS)]


@pytest.fixture
def crowd():
    """Busy loops beside the test, which ends each of them."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(LOOPS)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.usefixtures("crowd")
@pytest.mark.parametrize(("slug", "lanes"), [*((slug, 2) for slug in exercises.LABS), *((slug, 1) for slug in TIGHT)])
def test_right_answers_keep_their_points(tmp_path, slug, lanes):
    text, todo = build.write(build.solved(slug)), []
    for student in ("ada", "ben"):
        path = tmp_path / f"{student}.ipynb"
        path.write_text(text, encoding="utf-8")
        todo.append(Submission(student, path))
    found = [result for _, result in batch.grade_all(todo, b"secret", exercises.load(slug), None, lanes)]
    assert [result.summary() for result in found] == ["", ""]
    assert {exercise.note for result in found for exercise in result.exercises} == {""}
