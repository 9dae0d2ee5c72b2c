"""Pictures that move: one Agg canvas, redrawn in place, sent to the page as one image.

A picture is a pure function `draw(state, axes)`. `state` is a dict; `axes` is one matplotlib Axes or, with a `layout`,
a dict of them by name. It may return a sentence: what the picture shows now. The sentence stands below the axes and is
the picture's text for screen readers; an `Alarm` stands there in vermillion.

    def draw(state, axes):
        axes.plot(...)
        axes.set(xlabel="step", ylabel="loss")
        return f"After {state['steps']} steps the loss is ..."

    Explorable(draw, {"steps": slider("steps", 30, 0, 60)})

No pyplot figure is ever made: its manager would keep every figure alive, and a new figure per move is slower.
"""

import base64
import textwrap
import time

import ipywidgets as widgets
import matplotlib
import numpy as np
import traitlets
from IPython.display import display

from hpcdl.widgets.canvas import Canvas
from hpcdl.widgets.names import Names
from hpcdl.widgets.style import ALARM, CARD, DPI, INK, STYLE, Alarm
from hpcdl.widgets.waiting import waiting_for

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


class LiveFigure(Picture):
    """A picture that moves while a computation runs: `show()` once, then `update(state)` as often as you like.

    Updates closer together than `seconds` are merged, so that drawing does not slow the computation; the last one is
    drawn by `finish()`, or at the end of the `with` block:

        with LiveFigure(draw) as live:
            for record in cluster.stream(...):
                live.update(record)
    """

    def __init__(self, draw, figsize=(9.6, 4.2), layout=None, *, seconds=0.1, **mosaic):
        super().__init__(draw, figsize, layout, **mosaic)
        self.seconds, self.state, self._drawn_at, self._pending, self._shown = seconds, None, 0.0, False, None

    def show(self) -> None:
        """Put the picture into the cell's output."""
        if not self.image.value:
            self.wait("Waiting for the first numbers.")
        self._shown = display(self._mimebundle(), raw=True, display_id=True)

    def update(self, state: dict) -> None:
        """Show `state` now, or with the next update where the last picture is younger than `seconds`."""
        self.state, self._pending = state, True
        if time.monotonic() - self._drawn_at >= self.seconds:
            self._draw_pending()

    def finish(self) -> None:
        """Draw the last state, and keep it as the still picture of a saved notebook."""
        if self._pending:
            self._draw_pending()
        if self._shown is not None:
            self._shown.update(self._mimebundle(), raw=True)

    def _draw_pending(self) -> None:
        self.render(self.state)
        self._drawn_at, self._pending = time.monotonic(), False

    def _mimebundle(self) -> dict:
        return self.still(self.image)

    def __enter__(self) -> "LiveFigure":
        self.show()
        return self

    def __exit__(self, *exception) -> None:
        self.finish()


class Explorable:
    """A picture and its controls: `draw(state, axes)` with `state[name]` the value of `controls[name]`.

    Every control is an ipywidgets widget with a `value` (see `slider`, `choice`, `stops`, `checkbox`, `player`), so
    that Tab reaches it and the arrow keys move it. Make it the last line of a cell.
    """

    def __init__(self, draw, controls: dict, figsize=(9.6, 4.2), layout=None, **mosaic):
        self.picture, self.controls = Picture(draw, figsize, layout, **mosaic), dict(controls)
        row = widgets.Layout(
            flex_flow="row wrap", align_items="center", max_width=self.picture.image.width + "px", margin="4px 0 12px 0"
        )
        self.view = widgets.VBox([self.picture.image, widgets.Box([*self.controls.values(), Names()], layout=row)])
        for control in self.controls.values():
            control.observe(self._redraw, "value")
        self._redraw()

    @property
    def state(self) -> dict:
        """The value of every control by name."""
        return {name: control.value for name, control in self.controls.items()}

    def _redraw(self, _change=None) -> None:
        # Draw inside the handler, never later on the event loop: while the kernel is busy with one move of a slider the
        # front end holds back and merges the next ones, so a fast hand costs few pictures and the last one is right.
        self.picture.render(self.state)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return self.picture.still(self.view)


class Player(widgets.HBox):
    """A play button and a slider over whole numbers that move together; `value` is the slider's."""

    value = traitlets.Int()

    def __init__(self, label: str, value: int, low: int, high: int, milliseconds: int):
        button = widgets.Play(value=value, min=low, max=high, interval=milliseconds, show_repeat=False)
        bar = slider(label, value, low, high)
        super().__init__([button, bar], layout=widgets.Layout(align_items="center"))
        widgets.jslink((button, "value"), (bar, "value"))
        traitlets.link((bar, "value"), (self, "value"))


def slider(label: str, value, low, high, step=1, format: str | None = None):
    """A slider with its label: whole numbers if `value`, `low`, `high` and `step` are, else real ones."""
    if all(isinstance(number, int) for number in (value, low, high, step)):
        return widgets.IntSlider(value, low, high, step, **_labelled(label))
    return widgets.FloatSlider(value, min=low, max=high, step=step, readout_format=format or ".2f", **_labelled(label))


def log_slider(label: str, value: float, low: float, high: float):
    """A slider over powers of ten: `low` and `high` are the ends, twenty steps to a decade."""
    ends = {"min": np.log10(low), "max": np.log10(high), "step": 0.05}
    return widgets.FloatLogSlider(value, readout_format=".3g", **ends, **_labelled(label))


def choice(label: str, options, value):
    """A drop-down list."""
    return widgets.Dropdown(options=options, value=value, **_labelled(label, width="max-content"))


def stops(label: str, options, value):
    """A slider that stops only at the given options: batch sizes 1, 2, 4, 8."""
    return widgets.SelectionSlider(options=options, value=value, **_labelled(label))


def checkbox(label: str, value: bool):
    """A box to tick."""
    return widgets.Checkbox(value, description=label, indent=False, layout={"width": "max-content"})


def player(label: str, value: int, low: int, high: int, milliseconds: int = 100):
    """A slider with a play button beside it that moves it one step every `milliseconds`."""
    return Player(label, value, low, high, milliseconds)


def _labelled(label: str, width: str | None = None) -> dict:
    """How a control stands in the row: its whole label, then (by default) a slider's track of 190 pixels."""
    width = width or f"{270 + 8 * len(label)}px"
    return {"description": label, "style": {"description_width": "initial"}, "layout": {"width": width}}


def _sentence(error: Exception) -> str:
    """What went wrong in `draw`, for a student."""
    if isinstance(error, NotImplementedError):
        return waiting_for(error)
    return f"This picture cannot be drawn: {type(error).__name__}: {error}"
