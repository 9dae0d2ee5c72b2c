"""Pictures follow the page's theme: dark cards on dark pages, the same card again when the light comes back."""

import io

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from hpcdl.widgets import Explorable, LiveFigure, style
from hpcdl.widgets.kit import palette
from hpcdl.widgets.kit.controls import slider


@pytest.fixture(autouse=True)
def light_again():
    yield
    palette.choose(dark=False)


def pixels(picture) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture.image.value)))


def draw(state, axes) -> str:
    axes.plot([0, 1], [0, state["slope"]])
    axes.set(xlabel="time (s)", ylabel="height (m)")
    return f"The slope is {state['slope']}."


def test_dark_page_gets_a_dark_picture():
    shown = Explorable(draw, {"slope": slider("slope", 1, 0, 5)})
    light = pixels(shown.picture)
    shown.picture.theme.dark = True  # as the page tells
    dark = pixels(shown.picture)
    assert np.median(light) > 240
    assert np.median(dark) < 40
    assert np.abs(dark[:4] - 255.0 * np.array(to_rgb(style.CARD))).max() < 2, "margins too"
    shown.picture.theme.dark = False
    assert np.array_equal(light, pixels(shown.picture))


def test_theme_holds_for_later_pictures():
    shown = Explorable(draw, {"slope": slider("slope", 1, 0, 5)})
    shown.picture.theme.dark = True
    assert np.median(pixels(Explorable(draw, {"slope": slider("slope", 1, 0, 5)}).picture)) < 40
    assert to_rgb(style.INK) > (0.8, 0.8, 0.8)


def test_a_sentence_is_repainted_too():
    live = LiveFigure(draw)
    live.wait("Press start.")
    light = pixels(live)
    live.theme.dark = True
    assert np.median(pixels(live)) < 40
    assert live.caption == "Press start."
    assert not np.array_equal(light, pixels(live))


def test_tints_follow():
    name = palette.tint(style.BLUE, 0.5)
    light = to_rgb(name)
    palette.choose(dark=True)
    assert sum(to_rgb(name)) < sum(light)
