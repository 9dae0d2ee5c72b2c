"""The curve of the guesses: with none, one and fifty of them."""

import math

import pytest

from hpcdl.guesses import Guess
from hpcdl.widgets.pictures import calibration

LABS = ("ddp", "tensors", "collectives")


def made(count: int) -> list[Guess]:
    return [Guess(f"{LABS[i % 3]}.x{i}", 10 ** math.sin(i + 1)).seen(1) for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 50])
def test_it_draws_any_number_of_guesses(count, draws_its_corners):
    draws_its_corners(lambda: calibration.explorable(lambda: made(count)), {"order": list(calibration.ORDERS)})


def test_the_order_of_the_course_is_another(answers_its_controls):
    answers_its_controls(lambda: calibration.explorable(lambda: made(9)), {"order": list(calibration.ORDERS)})


def test_guesses_that_were_not_made_or_not_seen_count_for_nothing():
    unseen = [Guess("ddp.a", None).seen(3), Guess("ddp.b", 4)]
    assert "No guesses yet" in calibration.explorable(lambda: unseen).picture.caption


def test_what_is_far_off_stands_at_the_edge():
    picture = calibration.explorable(lambda: [Guess("ddp.x", 1e9).seen(1)]).picture
    (dot,) = [line for line in picture.axes["each"].lines if line.get_marker() == "o"]
    assert list(dot.get_ydata()) == [calibration.MOST]
