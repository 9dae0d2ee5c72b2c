"""Students read exercise cells on small screens: at 1280 pixels a code cell shows 92 characters, and does not wrap."""

import pytest

from autograder import exercises
from autograder.authors import build

LONGEST = 92


@pytest.mark.parametrize("slug", exercises.LABS)
def test_no_line_of_an_exercise_runs_off_the_page(slug):
    cells = [cell for cell in build.student(slug).cells if "exercise" in cell.metadata.get("hpcdl", {})]
    long = [line for cell in cells for line in cell.source.splitlines() if len(line) > LONGEST]
    assert cells
    assert not long, "wrap these lines:\n" + "\n".join(long)
