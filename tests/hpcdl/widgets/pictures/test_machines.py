"""The picture of lab `machines`: its layers stand where the lab's solution puts them."""

import pytest

from hpcdl.widgets.pictures import under_the_roof

pytestmark = pytest.mark.labs

VALUES = {"batch": (1, 32, 1024), "chip": tuple(under_the_roof.CHIPS)}


def test_every_corner_is_drawn(draws_its_corners):
    draws_its_corners(under_the_roof.explorable, VALUES)


def test_every_control_changes_the_picture(answers_its_controls):
    answers_its_controls(under_the_roof.explorable, VALUES)


def test_layers_are_the_labs():
    """A batch of 1 of the fully connected layer does one operation a byte, as each weight of 2 bytes does two."""
    assert under_the_roof.intensity("fully connected", 1, 2) == pytest.approx(1, abs=0.01)
    weights, macs, moved = under_the_roof.LAYERS["3 x 3 convolution"]
    assert (weights, macs, moved) == (589_824, 589_824 * 196, 100_352)


@pytest.mark.parametrize(("batch", "limited"), [(1, 3), (1024, 2)])
def test_sentence_counts_who_waits_for_memory(batch, limited):
    shown = under_the_roof.explorable()
    shown.picture.render({**shown.state, "batch": batch})
    assert sum(layer in shown.picture.caption for layer in under_the_roof.LAYERS) == limited
