"""The live training picture: every rank's curves with units, at any number of ranks, from the first record on."""

import math

import pytest
from matplotlib.figure import Figure

from hpcdl.cluster import Record
from hpcdl.widgets.training import TrainingFigure, draw, smooth


def state(ranks, steps, epochs=3):
    one = {
        "epoch": [epochs * (i + 1) / steps for i in range(steps)],
        "loss": [2.0 / (i + 1) for i in range(steps)],
        "images_per_second": [1000.0] * steps,
    }
    return {"epochs": epochs, "ranks": dict.fromkeys(range(ranks), one)}


def drawn(state):
    axes = Figure().subplot_mosaic([["loss", "rate"]])
    return axes, draw(state, axes)


@pytest.mark.parametrize("ranks", [1, 2, 4, 9])
def test_each_rank_has_its_curves_and_its_name(ranks):
    axes, sentence = drawn(state(ranks, 30))
    assert len(axes["rate"].lines) == ranks
    assert len(axes["loss"].lines) == 2 * ranks
    assert [text.get_text() for text in axes["rate"].get_legend().get_texts()] == [f"rank {r}" for r in range(ranks)]
    assert axes["rate"].get_ylabel() == "thousand images/s"
    assert axes["loss"].get_xlabel() == axes["rate"].get_xlabel() == "epochs"
    assert f"{1000 * ranks:,} images/s" in sentence
    assert "Epoch 3.0 of 3" in sentence


def test_before_the_first_record_it_says_so():
    assert drawn({"epochs": 3, "ranks": {}})[1] == "No rank has reported yet."


def test_smoothing_keeps_constants_and_leaves_out_ranks_without_images():
    assert smooth([3.0] * 5) == pytest.approx([3.0] * 5)
    assert smooth([1.0, math.nan, 1.0]) == pytest.approx([1.0] * 3)
    assert math.isnan(smooth([math.nan])[0])


def test_records_are_added_and_change_the_picture():
    picture = TrainingFigure(epochs=2)
    picture.seconds = 0
    images = []
    for step in range(1, 4):
        for rank in range(2):
            value = {"epoch": step / 10, "loss": 1 / step, "images_per_second": 500.0 * step}
            picture.add(Record(rank, step * 0.1, value))
        images.append(picture.image.value)
    assert len(set(images)) == 3
    assert picture.state["ranks"][1]["loss"] == pytest.approx([1, 1 / 2, 1 / 3])
    assert "cannot be drawn" not in picture.caption
