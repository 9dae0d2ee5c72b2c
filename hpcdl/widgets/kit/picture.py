"""One figure on one canvas, redrawn in place and sent to the page as one image; what goes wrong becomes a sentence.

No pyplot figure is ever made: its manager would keep every figure alive, and a new figure per move is slower.
"""

import base64
import textwrap
from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as widgets
import matplotlib
import traitlets
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpcdl.widgets.kit import palette, units
from hpcdl.widgets.kit.canvas import Canvas
from hpcdl.widgets.kit.plots import LEAST
from hpcdl.widgets.kit.style import ALARM, DPI, INK, STYLE, Alarm
from hpcdl.widgets.kit.theme import Theme
from hpcdl.widgets.kit.turns import TURNS
from hpcdl.widgets.kit.waiting import waiting_for

BORDER = "1px solid var(--jp-border-color2, #8888)"
INDENT = 0.14  # inches left and right of the sentence
CAPTION_INCHES = 0.5  # the strip below the axes in which the sentence stands


class TitledImage(widgets.Image):
    """An image whose `tooltip` is its text for screen readers."""

    # The page takes a tooltip only beside an empty description, and fails without one (ipywidgets 8.1).
    description = traitlets.Unicode("").tag(sync=True)


class Picture:
    """One figure on one Agg canvas and the image widget that shows it: `render(state)` redraws both in place.

    `figsize` is in inches of 100 CSS pixels; `layout` names several axes, as in `Figure.subplot_mosaic`; `image` is the
    widget whose `value` and `tooltip` are set; `frame` holds it on the page.
    """

    def __init__(
        self,
        draw: Callable,
        figsize: tuple[float, float] = (9.6, 4.2),
        layout: Any = None,
        *,
        image: Any = None,
        **mosaic: Any,
    ):
        self.draw, self.caption = draw, ""
        self._new_canvas = partial(Canvas, figsize, layout, bottom=CAPTION_INCHES / figsize[1], **mosaic)
        self._paint: Callable[[], bytes] | None = None  # how it was drawn last
        TURNS.take(self, self._take_canvas)
        self.image = image or TitledImage(format="png")
        self.image.width = str(round(figsize[0] * DPI))
        narrowest = f"{round(figsize[0] * DPI * LEAST)}px"
        self.image.layout = widgets.Layout(
            max_width="calc(100% - 4px)",  # margins
            min_width=narrowest,
            object_fit="contain",
            border=BORDER,
        )
        self.frame = widgets.VBox([self.image], layout=widgets.Layout(overflow="auto"))
        self.theme = Theme(self._repaint)

    @property
    def figure(self) -> Figure:
        """Return what is drawn on; another one after the page's theme has changed."""
        return self.canvas.figure

    @property
    def axes(self) -> Axes | dict[str, Axes]:
        """Return the axes, by name where there is a layout."""
        return self.canvas.axes

    def render(self, state: dict | Callable[[], dict]) -> None:
        """Draw `state`, or what it returns when the turn of this picture has come.

        What goes wrong inside `draw` becomes a sentence in the picture, never an exception. From several threads at
        once the newest state is drawn, and no call returns before.
        """
        self._show(lambda: self._drawn(state() if callable(state) else state))

    def wait(self, sentence: str) -> None:
        """Show nothing but a sentence."""
        self._show(lambda: self._card(sentence))

    def _show(self, paint: Callable[[], bytes]) -> None:
        TURNS.take(self, partial(self._paint_now, paint))

    def _paint_now(self, paint: Callable[[], bytes]) -> None:
        self._paint, self.image.painter = paint, self
        if self.dark != palette.is_dark():
            self._take_canvas()
        with matplotlib.rc_context(STYLE):
            self._send(paint())

    def _take_canvas(self) -> None:
        """A canvas in the colours of the page: ticks and spines keep those that they were made with."""
        self.dark = palette.is_dark()
        with matplotlib.rc_context(STYLE):
            self.canvas = self._new_canvas()

    def _repaint(self) -> None:
        """Show the same once more; two pictures may share an image, then the one that is seen."""
        painter = getattr(self.image, "painter", None)
        if painter is not None:
            painter._show(painter._paint)

    def _drawn(self, state: dict) -> bytes:
        self.canvas.clear()
        try:
            self._say(self.draw(state, self.axes))
            self.canvas.lay_out()
            return self.canvas.png()
        except Exception as error:  # the student's own function may run inside draw: anything can happen there
            return self._card(Alarm(_sentence(error)))

    def _card(self, sentence: str) -> bytes:
        self.canvas.clear(visible=False)
        self._say(sentence, y=0.5)
        return self.canvas.png()

    def _send(self, png: bytes) -> None:
        with self.image.hold_sync():  # picture and text change in one message
            self.image.value, self.image.tooltip = png, self.caption

    def _say(self, sentence: str | None, y: float | None = None) -> None:
        self.caption = str(sentence or "")
        width, height = self.figure.get_size_inches()
        text = self.figure.text(
            INDENT / width,
            0.5 * CAPTION_INCHES / height if y is None else y,
            "",
            color=ALARM if isinstance(sentence, Alarm) else INK,
            weight="bold" if isinstance(sentence, Alarm) else "normal",
            va="center",
            parse_math=False,
        )
        for letters in range(int(width * (10 if isinstance(sentence, Alarm) else 11)), 0, -1):  # digits are wide
            text.set_text(_wrapped(self.caption, letters))
            if text.get_window_extent().x1 <= (width - INDENT) * DPI:
                break

    def still(self, view: Any) -> dict:
        """Return what Jupyter shows: the live `view`, and the picture itself where there is no front end."""
        png = base64.b64encode(self.image.value).decode()
        return {**view._repr_mimebundle_(), "image/png": png, "text/plain": self.caption or "(a picture)"}


def _wrapped(sentence: str, width: int) -> str:
    """Break the sentence into lines of up to `width` characters, but not between a number and its unit."""
    return "\n".join(textwrap.wrap(units.joined(sentence), width))


def _sentence(error: Exception) -> str:
    """Return what went wrong in `draw`, for a student."""
    if isinstance(error, NotImplementedError):
        return waiting_for(error)
    return f"This picture cannot be drawn: {type(error).__name__}: {error}"
