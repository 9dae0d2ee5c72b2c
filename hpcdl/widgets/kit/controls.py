"""The controls of a picture: ipywidgets with a `value`, which Tab reaches and the arrow keys move."""

from collections.abc import Callable, Iterable
from typing import Any

import ipywidgets as widgets
import numpy as np
import traitlets

MICRO, NANO = 1e-6, 1e-9
SLIDERS = (widgets.IntSlider, widgets.FloatSlider, widgets.FloatLogSlider, widgets.SelectionSlider)


class Composite(widgets.HBox):
    """A slider with buttons beside it; `value` is the slider's own, so that two threads never see two values."""

    def __init__(self, bar: Any, parts: list):
        self.bar = bar
        super().__init__(parts, layout=widgets.Layout(align_items="center"))

    @property
    def value(self) -> int:
        """Where the slider stands."""
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
    """A drop-down list, with room before the control after it."""
    labelled = _labelled(label, width="max-content")
    labelled["layout"]["margin"] = "2px 16px 2px 2px"
    return widgets.Dropdown(options=options, value=value, **labelled)


def stops(label: str, options: Any, value: Any):
    """A slider that stops only at the given options: batch sizes 1, 2, 4, 8."""
    return widgets.SelectionSlider(options=options, value=value, **_labelled(label))


def checkbox(label: str, value: bool):
    """A box to tick."""
    return widgets.Checkbox(value, description=label, indent=False, layout={"width": "max-content"})


def player(label: str, value: int, low: int, high: int, milliseconds: int = 100):
    """A slider with a play button beside it that moves it one step every `milliseconds`."""
    return Player(label, value, low, high, milliseconds)


def align(controls: Iterable) -> None:
    """Give controls that are all sliders the same widths, so that they form columns."""
    controls = list(controls)
    if all(isinstance(control, SLIDERS) for control in controls):
        longest = max((control.description for control in controls), key=len, default="")
        for control in controls:
            control.style.description_width, control.layout.width = f"{8 * len(longest)}px", _width(longest)


def _width(label: str) -> str:
    """The width of a slider: its label, a track of 190 pixels, and its value."""
    return f"{270 + 8 * len(label)}px"


def _labelled(label: str, width: str | None = None) -> dict:
    """How a control is placed in its row: with its whole label, by default as wide as a slider."""
    width = width or _width(label)
    return {"description": label, "style": {"description_width": "initial"}, "layout": {"width": width}}
