"""Pictures follow the page's theme: dark cards on dark pages, the same card again when the light comes back."""

import base64
import io
import re

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from hpcdl.widgets import Explorable, LiveFigure, style
from hpcdl.widgets.kit import palette, plots
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


def test_tints_and_shades_follow():
    tint, shade = palette.tint(style.BLUE, 0.5), style.shade(1.0)
    light = [sum(to_rgb(name)) for name in (tint, shade)]
    palette.choose(dark=True)
    assert sum(to_rgb(tint)) < light[0]
    assert sum(to_rgb(shade)) > light[1], "the strongest stands out from the card"


# What each part of a plot is drawn with, in a colour of ours.
PARTS = {
    "line": lambda axes: axes.plot([0, 1], color=style.BLUE),
    "cycle": lambda axes: axes.plot([0, 1], "o-"),
    "shade": lambda axes: axes.plot([0, 1], color=style.shade(0.9)),
    "bars": lambda axes: axes.bar([0, 1], 1, color=[style.ORANGE, style.VERMILLION], alpha=0.5),
    "histogram": lambda axes: axes.hist([0, 1, 1], color=style.GREEN, edgecolor=style.INK),
    "broken bars": lambda axes: axes.broken_barh([(0, 1)], (0, 1), color=style.PURPLE),
    "points": lambda axes: axes.scatter([0, 1], [1, 0], color=[style.SKY, style.BLUE]),
    "an area": lambda axes: axes.fill_between([0, 1], [0, 1], color=style.GREEN, alpha=0.3),
    "errors": lambda axes: axes.errorbar([0, 1], [1, 2], yerr=0.1, color=style.VERMILLION),
    "a text on a line": lambda axes: axes.text(0.5, 0.5, "word", bbox=style.BEHIND),
    "an arrow": lambda axes: axes.annotate("here", (0, 0), (0.6, 0.6), arrowprops={"color": style.INK}),
    "a legend": lambda axes: axes.plot([0, 1], label="a") and axes.legend(frameon=True, facecolor=style.CARD),
    "numbers": lambda axes: axes.scatter([0, 1], [0, 1], c=[1, 2]),
    "the lab's own colour": lambda axes: axes.bar([0, 1], 1, color="#123456"),
}


def plotted(part):
    with matplotlib.rc_context(style.STYLE):
        figure = Figure(figsize=(2, 1.5))
        axes = figure.subplots()
        PARTS[part](axes)
        axes.set(title="Steps & loss", xlabel="step", ylabel="loss")
    return figure


def shown(figure) -> list[np.ndarray]:
    found = re.findall('base64,([^"]+)"', plots.bundle(figure)["text/html"])
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(image)))).astype(float) for image in found]


def saved(figure) -> np.ndarray:
    file = io.BytesIO()
    figure.savefig(file, bbox_inches="tight")
    return np.asarray(Image.open(file)).astype(float)


@pytest.mark.parametrize(("part", "was_dark"), [*((part, False) for part in PARTS), ("bars", True)])
def test_a_plot_is_drawn_for_both_themes(part, was_dark):
    """Each drawing is what the same statements draw in that theme."""
    palette.choose(dark=was_dark)
    both = shown(plotted(part))
    assert palette.is_dark() == was_dark
    for dark, picture in zip([False, True], both, strict=True):
        palette.choose(dark=dark)
        assert np.array_equal(picture, saved(plotted(part)))
        assert (picture[0, 0, 0] < 40) == dark


def test_a_plot_has_words_for_screen_readers():
    bundle = plots.bundle(plotted("line"))
    assert bundle["text/html"].count('alt="Plot: Steps &amp; loss"') == 2
    assert base64.b64decode(bundle["image/png"])[:4] == b"\x89PNG"


def test_the_palette_outlives_a_plot_that_cannot_be_drawn():
    figure = plotted("line")
    figure.axes[0].set_title("$\\frac$")
    with pytest.raises(ValueError, match="frac"):
        plots.bundle(figure)
    assert not palette.is_dark()
