"""A lab's first lines say how many of the 100 points its extra exercises have."""

import pytest

from autograder import exercises
from autograder.authors import build


@pytest.mark.parametrize("slug", exercises.LABS)
def test_the_head_says_how_many_points_are_of_extras(slug):
    extras = [e for e in exercises.load(slug).exercises.values() if e.extra]
    cells = [cell.source for cell in build.student(slug).cells if cell.cell_type == "markdown"]
    head = next(cell for cell in cells if "exercises, about" in cell or "points, " in cell)
    said = f"{sum(e.minutes for e in extras)} more, and {'has' if len(extras) == 1 else 'have'} "
    said += f"{sum(e.points for e in extras):g} of the points.**"
    assert (said in head) == bool(extras), head
