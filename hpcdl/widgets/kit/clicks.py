"""An image that can be clicked: a mouse, a finger, or the arrow keys and Enter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from matplotlib.axes import Axes

CROSS = "var(--jp-content-font-color0, #1f2328)"
HELP = (
    "Click, or move a crosshair with the arrow keys (Shift: faster) and press Enter; Shift-Enter for the other class."
)


class ClickableImage(anywidget.AnyWidget):
    """Shows the PNG `value`, described by `tooltip`, as ipywidgets' Image does, and calls `clicked(x, y, shift)`.

    `x` and `y` are fractions of the image's width and height, from its top left corner; `shift` says whether the shift
    key was held.
    """

    _esm = Path(__file__).with_name("clicks.js")
    _css = f"""
        .hpcdl-clicks {{ position: relative; width: fit-content; }}
        .hpcdl-clicks img {{ display: block; max-width: 100%; cursor: crosshair; user-select: none; }}
        .hpcdl-clicks:focus-visible {{ outline: 2px solid {CROSS}; outline-offset: -2px; }}
        .hpcdl-cross {{
            position: absolute; width: 25px; height: 25px; transform: translate(-50%, -50%); pointer-events: none;
            background: linear-gradient({CROSS} 0 0) 50% / 25px 2px, linear-gradient({CROSS} 0 0) 50% / 2px 25px;
            background-repeat: no-repeat;
        }}
        .hpcdl-cross[hidden] {{ display: none; }}
    """
    value = traitlets.Bytes().tag(sync=True)
    tooltip = traitlets.Unicode()  # not sent as such: it would pop up under the mouse
    alt = traitlets.Unicode().tag(sync=True)
    width = traitlets.Unicode().tag(sync=True)
    help = traitlets.Unicode(HELP).tag(sync=True)

    def __init__(self, clicked: Callable[[float, float, bool], None], **traits: Any):
        super().__init__(**traits)
        self.on_msg(lambda _widget, message, _buffers: clicked(message["x"], message["y"], message["shift"]))

    @traitlets.observe("tooltip")
    def _describe(self, change) -> None:
        self.alt = change.new


def data_position(axes: Axes, x: float, y: float) -> tuple[float, float] | None:
    """Return the data coordinates in `axes` of a click at fractions x, y of its figure; None outside of the axes."""
    width, height = axes.figure.canvas.get_width_height()
    pixel = (x * width, (1 - y) * height)
    if not axes.bbox.contains(*pixel):
        return None
    right, up = axes.transData.inverted().transform(pixel)
    return float(right), float(up)
