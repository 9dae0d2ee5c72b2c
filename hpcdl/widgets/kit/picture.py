"""One figure on one canvas, redrawn in place and sent to the page as one image; what goes wrong becomes a sentence.

No pyplot figure is ever made: its manager would keep every figure alive, and a new figure per move is slower.
"""

import base64
import textwrap

import ipywidgets as widgets
import matplotlib
import traitlets

from hpcdl.widgets.kit.canvas import Canvas
from hpcdl.widgets.kit.style import ALARM, CARD, DPI, INK, STYLE, Alarm
from hpcdl.widgets.kit.waiting import waiting_for

CAPTION_INCHES = 0.5  # the strip below the axes in which the sentence stands


class TitledImage(widgets.Image):
    """An image whose `tooltip` is its text for screen readers."""

    # The page takes a tooltip only beside an empty description, and fails where there is none (ipywidgets 8.1).
    description = traitlets.Unicode("").tag(sync=True)


class Picture:
    """One figure on one Agg canvas and the image widget that shows it: `render(state)` redraws both in place.

    `figsize` is in inches of 100 CSS pixels; `layout` names several axes, as in `Figure.subplot_mosaic`; `image` is the
    widget whose `value` and `tooltip` are set.
    """

    def __init__(self, draw, figsize=(9.6, 4.2), layout=None, *, image=None, **mosaic):
        self.draw, self.caption = draw, ""
        with matplotlib.rc_context(STYLE):
            self.canvas = Canvas(figsize, layout, bottom=CAPTION_INCHES / figsize[1], **mosaic)
        self.figure, self.axes = self.canvas.figure, self.canvas.axes
        self.image = image or TitledImage(format="png")
        self.image.width = str(round(figsize[0] * DPI))
        self.image.layout = widgets.Layout(max_width="100%", object_fit="contain", border=f"1px solid {CARD}")

    def render(self, state: dict) -> None:
        """Draw `state`; what goes wrong inside `draw` becomes a sentence in the picture, never an exception."""
        with matplotlib.rc_context(STYLE):
            self.canvas.clear()
            try:
                self._say(self.draw(state, self.axes))
                self.canvas.lay_out()
                png = self.canvas.png()
            except Exception as error:  # the student's own function may run inside draw: anything can happen there
                png = self._card(Alarm(_sentence(error)))
        self._send(png)

    def wait(self, sentence: str) -> None:
        """Show nothing but a sentence."""
        with matplotlib.rc_context(STYLE):
            self._send(self._card(sentence))

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
        self.figure.text(
            0.14 / width,
            0.5 * CAPTION_INCHES / height if y is None else y,
            "\n".join(textwrap.wrap(self.caption, int(width * (10 if isinstance(sentence, Alarm) else 11)))),
            color=ALARM if isinstance(sentence, Alarm) else INK,
            weight="bold" if isinstance(sentence, Alarm) else "normal",
            va="center",
            parse_math=False,
        )

    def still(self, view) -> dict:
        """What Jupyter shows: the live `view`, and the picture itself where there is no front end."""
        png = base64.b64encode(self.image.value).decode()
        return {**view._repr_mimebundle_(), "image/png": png, "text/plain": self.caption or "(a picture)"}


def _sentence(error: Exception) -> str:
    """What went wrong in `draw`, for a student."""
    if isinstance(error, NotImplementedError):
        return waiting_for(error)
    return f"This picture cannot be drawn: {type(error).__name__}: {error}"
