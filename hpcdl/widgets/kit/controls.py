"""The controls of a picture: ipywidgets with a `value`, which Tab reaches and the arrow keys move."""

from collections.abc import Callable, Iterable
from typing import Any

import ipywidgets as widgets
import numpy as np
import traitlets

MICRO, NANO = 1e-6, 1e-9
TRACK, FRAME = 200, 36  # pixels of a slider's track and number; around the words of a list, box or button
BOTH, MODEL, MEASURED = "both", "model", "measured"
SLIDERS = (widgets.IntSlider, widgets.FloatSlider, widgets.FloatLogSlider, widgets.SelectionSlider)


class Composite(widgets.HBox):
    """A slider with buttons beside it; `value` is the slider's own, so that two threads never see two values."""

    def __init__(self, bar: Any, parts: list):
        self.bar = bar
        super().__init__(parts, layout=widgets.Layout(align_items="center"))

    @property
    def value(self) -> int:
        """Return where the slider stands."""
        return self.bar.value

    @value.setter
    def value(self, number: int) -> None:
        self.bar.value = number

    def observe(self, handler: Callable, names: Any = traitlets.All, type: str = "change") -> None:
        """As of every widget; its value is the slider's."""
        if names == "value":
            self.bar.observe(handler, names, type)
        else:
            super().observe(handler, names, type)


class Player(Composite):
    """A play button and a slider over whole numbers that move together."""

    def __init__(self, label: str, value: int, low: int, high: int, milliseconds: int):
        button = widgets.Play(value=value, min=low, max=high, interval=milliseconds, show_repeat=False)
        bar = slider(label, value, low, high)
        super().__init__(bar, [button, bar])
        widgets.jslink((button, "value"), (bar, "value"))


def slider(label: str, value: Any, low: float, high: float, step: float = 1, format: str | None = None):
    """A slider with its label: whole numbers if `value`, `low`, `high` and `step` are, else real ones."""
    if all(isinstance(number, int) for number in (value, low, high, step)):
        return widgets.IntSlider(value, low, high, step, **_labelled(label))
    return widgets.FloatSlider(value, min=low, max=high, step=step, readout_format=format or ".2f", **_labelled(label))


def log_slider(label: str, value: float, low: float, high: float, format: str = ".3g"):
    """A slider over powers of ten: `low` and `high` are the ends, twenty steps to a decade."""
    ends = {"min": np.log10(low), "max": np.log10(high), "step": 0.05}
    return widgets.FloatLogSlider(value, readout_format=format, **ends, **_labelled(label))


def machine_sliders(alpha: float, beta: float) -> dict:
    """Sliders "alpha", in microseconds per message, and "beta", in nanoseconds per byte, from values in seconds."""
    return {
        "alpha": log_slider("α, µs per message", alpha / MICRO, 0.1, 1e4, ".3r"),
        "beta": log_slider("β, ns per byte", beta / NANO, 1e-3, 100, ".3r"),
    }


def choice(label: str, options: Any, value: Any):
    """A drop-down list."""
    return widgets.Dropdown(options=options, value=value, **_labelled(label, width="max-content"))


def model_or_measured():
    """Return the switch, named "kind", of a picture with a model and measurements: both, or one on the same axes."""
    return choice("show", [BOTH, MODEL, MEASURED], BOTH)


def shows(state: dict, kind: str) -> bool:
    """Return whether that switch lets the picture show `kind`, MODEL or MEASURED."""
    return state.get("kind", BOTH) in (BOTH, kind)


def stops(label: str, options: Any, value: Any):
    """A slider that stops only at the given options: batch sizes 1, 2, 4, 8."""
    return widgets.SelectionSlider(options=options, value=value, **_labelled(label))


def checkbox(label: str, value: bool):
    """A box to tick."""
    return widgets.Checkbox(value, description=label, indent=False, layout={"width": "max-content"})


def player(label: str, value: int, low: int, high: int, milliseconds: int = 100):
    """A slider with a play button beside it that moves it one step every `milliseconds`."""
    return Player(label, value, low, high, milliseconds)


def columns(controls: Iterable, max_width: str) -> widgets.Layout:
    """Give controls equal columns, and return the layout of their box: as many columns as the page has room for.

    All labels are as wide as the longest, so tracks and lists begin at one place in a column. A `Composite` has a row
    of its own.
    """
    controls = list(controls)
    placed = [control for control in controls if not isinstance(control, Composite)]
    labelled = [control for control in placed if isinstance(control, (*SLIDERS, widgets.Dropdown))]
    label = max((_text(control.description) for control in labelled), default=0)
    for control in labelled:
        control.style.description_width = f"{label}px"
        if isinstance(control, SLIDERS):
            control.layout.width = "auto"
    for control in controls:
        if control not in placed:
            control.layout.grid_area = "auto / 1 / auto / -1"  # `grid_column` alone is reset by an empty `grid_area`
    width = max((_room(control, label) for control in placed), default=TRACK)
    return widgets.Layout(
        display="grid",
        grid_template_columns=f"repeat(auto-fill, minmax(min(100%, {width}px), 1fr))",
        grid_gap="0 8px",
        align_items="center",
        max_width=max_width,
    )


def _room(control: Any, label: int) -> int:
    """Return the pixels that a control needs, with a label of `label` pixels if it has one in front."""
    if isinstance(control, SLIDERS):
        return label + TRACK
    if isinstance(control, widgets.Dropdown):
        return label + FRAME + max((round(6.5 * len(option)) for option in control._options_labels), default=0)
    return FRAME + _text(control.description)


def _text(words: str) -> int:
    """Return at least the pixels of these words on the page."""
    return 6 + 8 * len(words)


def _width(label: str) -> str:
    """Return the width of a slider: its label, a track of 190 pixels, and its value."""
    return f"{270 + 8 * len(label)}px"


def _labelled(label: str, width: str | None = None) -> dict:
    """Return how a control is placed in its row: with its whole label, by default as wide as a slider."""
    width = width or _width(label)
    return {"description": label, "style": {"description_width": "initial"}, "layout": {"width": width}}
