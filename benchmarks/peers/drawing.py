"""matplotlib's own two ways of drawing a picture again: its axes cleared, or recreated."""

import io
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hpcdl.widgets.kit.style import STYLE

RC: Any = STYLE  # matplotlib's own type lists its 300 keys one by one


class Cleared:
    """One figure of matplotlib's own: its axes are cleared, and all of it is drawn."""

    def __init__(self, picture: Any):
        self.draw = picture.draw
        self.figure, self.axes = _like(picture.figure, picture.axes)

    def render(self, state: dict) -> None:
        with matplotlib.rc_context(RC):
            for axes in self.figure.axes:
                axes.clear()
            for text in list(self.figure.texts):
                text.remove()
            _write(self.figure, self.draw(state, self.axes))


class Redrawn:
    """A new figure each time."""

    def __init__(self, picture: Any):
        self.draw, self.figure, self.axes = picture.draw, picture.figure, picture.axes

    def render(self, state: dict) -> None:
        with matplotlib.rc_context(RC):
            figure, axes = _like(self.figure, self.axes)
            _write(figure, self.draw(state, axes))


def _like(figure: Figure, axes):
    """A new figure of that size with axes of those names, places and projections."""
    width, height = figure.get_size_inches()
    new = Figure(figsize=(width, height))
    FigureCanvasAgg(new)
    add = lambda old: new.add_axes(old.get_position().bounds, projection=old.name)  # noqa: E731 - used twice, below
    return new, {name: add(old) for name, old in axes.items()} if isinstance(axes, dict) else add(axes)


def _write(figure: Figure, sentence: str | None) -> None:
    figure.text(0.015, 0.06, str(sentence or ""), va="center", parse_math=False)
    figure.savefig(io.BytesIO(), format="png")
