"""The explorables of lab 01: they respond to every control, label their axes, and say what happens at extremes."""

import math

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from hpcdl.widgets import style
from hpcdl.widgets.kit.curves import CURVES
from hpcdl.widgets.pictures import secant, step_error, surface

pytestmark = pytest.mark.labs

PICTURES = {
    secant: {
        "curve": ("eˣ", "1 / x", "|x|"),
        "rule": ("forward", "central"),
        "microscope": (False, True),
        "x": (-2.0, 0.0),
        "h": (1e-17, 2.0),
    },
    step_error: {
        "curve": ("x²", "sin 20x", "1 / x"),
        "rule": ("forward", "central"),
        "x": (-2.0, 0.0, 2.0),
        "h": (1e-16, 1.0),
    },
    surface: {
        "surface": tuple(surface.SURFACES),
        "x": (-2.0, 0.0),
        "y": (-2.0, 2.0),
        "heading": (0, 135),
        "turn": (-180, 45),
    },
}
modules = pytest.mark.parametrize("module", PICTURES, ids=lambda module: module.__name__.rpartition(".")[2])


def shown(module, **changes):
    picture = module.explorable().picture
    state = {name: control.value for name, control in module.explorable().controls.items()}
    picture.render({**state, **changes})
    return picture


@pytest.mark.thinned(1, 2)
@modules
def test_every_corner_is_drawn_without_warning(module, draws_its_corners):
    draws_its_corners(module.explorable, PICTURES[module])


@modules
def test_every_control_changes_the_picture(module, answers_its_controls):
    answers_its_controls(module.explorable, PICTURES[module])


@modules
def test_axes_have_labels_and_titles(module):
    axes = module.explorable().picture.axes
    for one in axes.values() if isinstance(axes, dict) else [axes]:
        assert one.get_title(loc="left")
        if one.axison:  # the surface has its axes drawn into the picture, with their names
            assert one.get_xlabel()
            assert one.get_ylabel()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"curve": "x²", "x": 1.0, "h": 0.5}, "secant's slope is 2.5, the tangent's 2; off by 0.5"),
        ({"curve": "x²", "x": 1.0, "h": 0.5, "rule": "central"}, "secant's slope is 2, the tangent's 2; off by 0"),
        ({"h": 1e-17}, "x + h is x itself"),
        ({"h": 1e-13}, "Rounding"),
        ({"h": 0}, "0/0 is no slope"),
        ({"curve": "|x|", "x": 0.0}, "no derivative"),
        ({"curve": "|x|", "x": 0.0, "rule": "central"}, "slope is 0, but that is no derivative"),
        ({"curve": "1 / x", "x": 0.0}, "has no value at x = 0"),
    ],
)
def test_the_secant_says_what_it_shows(changes, words):
    assert words in shown(secant, **changes).caption


def test_the_secants_points_lie_on_the_curve_and_the_line():
    axes = shown(secant, curve="eˣ", x=0.5, h=1.0).axes["curve"]
    line = next(line for line in axes.lines if line.get_label() == "secant")
    (x0, x1), (y0, y1) = line.get_data()
    for x in (0.5, 1.5):
        assert y0 + (y1 - y0) * (x - x0) / (x1 - x0) == pytest.approx(math.exp(x))


def test_the_microscope_makes_a_smooth_curve_straight_and_keeps_a_corner():
    def bend(curve, x):
        axes = shown(secant, curve=curve, x=x, h=1e-4, microscope=True).axes["curve"]
        t, rise = axes.lines[0].get_data()
        slope, offset = np.polyfit(t, rise, 1)
        return np.abs(rise - slope * t - offset).max()

    assert bend("sin x", 0.5) < 1e-3
    assert bend("|x|", 0.0) > 0.5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rule": "central"}, "Best (stars)"),
        ({"curve": "x²", "rule": "central"}, "no best step"),
        ({"curve": "1 / x", "x": 0.0}, "has no value at x = 0"),
        ({"h": 0}, "0/0 is no slope"),
    ],
)
def test_the_error_curve_says_what_it_shows(changes, words):
    assert words in shown(step_error, **changes).caption


def test_float64_errs_less_than_float32_by_many_digits_at_their_best():
    best = {
        dtype: step_error.error(CURVES["sin x"], "central", 1.0, step_error.STEPS, dtype)
        .unfold(0, 8, 8).square().mean(1).sqrt().min()
        for dtype in step_error.COLORS
    }  # fmt: skip
    assert best[torch.float64] < 1e-4 * best[torch.float32]


def test_gradient_arrow_of_the_lectures_surface():
    axes = shown(surface, x=1.0, y=0.5).axes["map"]
    tips = {text.arrow_patch.get_edgecolor()[:3]: np.subtract(text.xy, (1.0, 0.5)) for text in axes.texts}
    gradient = tips[to_rgb(style.VERMILLION)]
    assert gradient == pytest.approx(surface.ARROW * np.array([2.5, 2.0]))


def test_the_surface_names_the_slope_ahead_and_the_steepest():
    assert "Slope towards 0°: 2.5; steepest: 3.2, towards 39°" in shown(surface, x=1.0, y=0.5, heading=0).caption
    assert "The gradient is zero" in shown(surface, x=0.0, y=0.0).caption


def test_contours_are_lines_of_equal_height():
    for name, f in surface.SURFACES.items():
        _, z, contours = surface.ground(name)
        assert len(contours) > 5
        for path in contours:
            heights = f(*torch.from_numpy(path).T)
            assert float(heights.max() - heights.min()) < 0.01 * np.ptp(z)
