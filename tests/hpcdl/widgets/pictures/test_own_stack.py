"""The picture of lab `own_stack`: a wall of bricks, lent and yours."""

import pytest

from hpcdl.training.own_stack import BRICKS, Tally
from hpcdl.widgets.pictures import own_stack

pytestmark = pytest.mark.labs  # as all corners of a lab's pictures

VALUES = {"brick": tuple(BRICKS), "solved": tuple(range(len(BRICKS) + 1))}
TRAINED = Tally({"ring": 11, "tape": 95}, {"step": 31}, 16, {}, {"ring_all_reduce": 69, "Node": 311})


def test_every_corner_is_drawn_without_warning(draws_its_corners):
    draws_its_corners(own_stack.explorable, VALUES)
    draws_its_corners(lambda: own_stack.explorable(TRAINED), {"brick": tuple(BRICKS)})


def test_every_control_changes_the_picture(answers_its_controls):
    answers_its_controls(own_stack.explorable, VALUES)


def test_each_brick_stands_once_and_calls_only_bricks():
    assert sorted(name for row in own_stack.ROWS for name in row) == sorted(BRICKS)
    assert all(called in BRICKS for brick in BRICKS.values() for called in brick.calls)


def test_the_caption_counts_what_is_yours():
    explorable = own_stack.explorable()
    assert explorable.picture.caption.startswith("0 of 126 lines are yours. Lent: momentum")
    explorable.picture.render({"brick": "tape", "solved": 7})
    assert explorable.picture.caption == "126 lines, all yours: nothing is lent."
    after = own_stack.explorable(TRAINED).picture.caption
    assert after.startswith("106 of 137 lines are yours")
