"""Nothing in a picture lies on a text: legends on no data, titles on no legends, and all within the page."""

import itertools
import random

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox

from hpcdl.widgets.film import STILL
from hpcdl.widgets.pictures import PICTURES
from tests.hpcdl.widgets.pictures.test_every_picture import made, move

pytestmark = pytest.mark.labs
MOVES = 10
SLACK = 2.0  # pixels at the edge of a text's box, which are empty


@pytest.mark.thinned(1, 3)
@pytest.mark.parametrize("name", [name for name in PICTURES if name not in STILL])  # those measure at each move
def test_texts_have_room(name):
    shown, chance = made(name), random.Random(name)
    controls = list(shown.controls.values())
    for _ in range(MOVES):
        assert clashes(shown.picture.figure) == [], dict(shown.state)
        if controls:
            move(chance.choice(controls), chance)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("grad_steps", {"steps": 8, "lr": 0.15, "forget": False}),
        ("gradient_norms", {"depth": 35, "scale": 0.4}),
        ("stalling_sum", {"steps": 500, "term": 0.0005, "format": "fixed point ⟨6, 4⟩"}),
        ("secant", {"curve": "1 / x", "x": 0.05, "microscope": True}),
        ("number_line", {"format": "fixed point ⟨4, 12⟩", "x": -4.57}),
        ("low_precision_training", {"wl": 14, "fl": 6}),
        ("bucket_timeline", {"gigabits": 50, "slow": 1.3, "overlap": False, "network": "vgg16"}),
        ("who_waits", {"over": "updates"}),
        ("your_design", {"p": 1, "m": 2, "cap": 10, "b": 1.75, "w": 0.5}),
        ("fill_the_bubble", {"preset": "14.6 B|128"}),
        ("fill_the_bubble", {"schedule": "gpipe", "m": 24}),
        (
            "does_it_fit",
            {"stage": 3, "p": 1024, "batch": 16, "recompute": "nothing", "t": 1, "model": "1.7 B (Narayanan)"},
        ),
    ],
)
def test_texts_have_room_at_the_ends(name, state):
    shown = made(name)
    shown.picture.render({**shown.state, **state})
    assert clashes(shown.picture.figure) == []


@pytest.mark.parametrize(
    ("draw", "found"),
    [
        (lambda axes: axes.axhline(0.9, label="a"), "line on legend"),
        (lambda axes: axes.bar([0, 1], [1, 1], label="a"), "patch on legend"),
        (lambda axes: (axes.plot([0, 1], [0, 0], label="a"), axes.text(0.9, 0.93, "words")), "text on legend"),
        (lambda axes: (axes.text(0.5, 0.5, "words"), axes.text(0.52, 0.51, "others")), "text on text"),
        (lambda axes: axes.text(0.97, 0.5, "many words that end far beyond"), "text off the page"),
        (lambda axes: axes.set_xticks([1], ["many words under the last tick"]), "text off the page"),
        (lambda axes: axes.set_xticks([0.5, 0.51], ["words", "others"]), "text on text"),
        (lambda axes: axes.figure.text(0.5, 0.01, 10 * "many words "), "text off the page"),
        (lambda axes: axes.plot([0, 1], [0, 0], label="a"), ""),
    ],
)
def test_what_has_no_room_is_found(draw, found):
    figure = Figure((4, 3))
    axes = figure.add_subplot()
    draw(axes)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right")
    figure.canvas.draw()
    assert [kind for kind, *_ in clashes(figure)] == [found] * bool(found)


def clashes(figure: Figure) -> list[tuple[str, str]]:
    found = [clash for axes in figure.axes for clash in _within(axes)]
    page = figure.bbox.padded(1)
    texts = [text for axes in figure.axes for text in (*axes.texts, *_titles(axes), *_scales(axes))]
    for text in (*figure.texts, *texts):
        box = text.get_window_extent()
        if _said(text) and not (page.contains(box.x0, box.y0) and page.contains(box.x1, box.y1)):
            found.append(("text off the page", text.get_text()))
    titles = [text for axes in figure.axes for text in _titles(axes) if _said(text)]
    return found + _overlapping(titles)


def _within(axes: Axes) -> list[tuple[str, str]]:
    texts = [text for text in (*axes.texts, *_titles(axes)) if _said(text)]
    found = _overlapping([text for text in texts if text in [*axes.texts]]) + _overlapping(_scales(axes))
    whole = axes.get_window_extent()
    for legend in (child for child in axes.get_children() if isinstance(child, Legend)):
        box = legend.get_window_extent().padded(-SLACK)
        for line in axes.lines:
            points = _points(line)
            if len(points) and (_inside(points, box) & _inside(points, whole)).any():
                found.append(("line on legend", str(line.get_label())))
        for patch in axes.patches:
            seen = Bbox.intersection(patch.get_window_extent(), whole)
            if seen and min(seen.width, seen.height) > 1 and box.overlaps(seen):
                found.append(("patch on legend", str(patch)))
        found += [("text on legend", text.get_text()) for text in texts if box.overlaps(text.get_window_extent())]
    return found


def _overlapping(texts) -> list[tuple[str, str]]:
    boxes = [(text.get_text(), text.get_window_extent().padded(-SLACK)) for text in texts]
    pairs = itertools.combinations(boxes, 2)
    return [("text on text", f"{one}, {other}") for (one, a), (other, b) in pairs if a.overlaps(b)]


def _titles(axes: Axes) -> tuple:
    return axes.title, axes._left_title, axes._right_title


def _scales(axes: Axes) -> list:
    """The labels of both axes and of the ticks that are drawn."""
    seen = [axis for axis in (axes.xaxis, axes.yaxis) if axes.axison and axes.get_visible() and axis.get_visible()]
    texts = [text for axis in seen for text in (axis.label, *(tick.label1 for tick in axis._update_ticks()))]
    return [text for text in texts if _said(text)]


def _said(text) -> bool:
    return text.get_visible() and bool(text.get_text().strip())


def _inside(points: np.ndarray, box: Bbox) -> np.ndarray:
    return ((points > box.min) & (points < box.max)).all(1)


def _points(line) -> np.ndarray:
    """The points of a line on the page, close together along it."""
    if not line.get_visible() or not len(line.get_xdata()):
        return np.empty((0, 2))
    points = line.get_transform().transform(line.get_xydata())
    points = points[np.isfinite(points).all(1)]
    if line.get_linestyle() == "None":
        return points
    between = np.linspace(0, 1, 50)[:, None]
    return np.concatenate([points, *(a + between * (b - a) for a, b in itertools.pairwise(points))])
