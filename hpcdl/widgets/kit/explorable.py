"""A picture and its controls: each move of a control redraws the picture.

A picture is a pure function `draw(state, axes)`. `state` is a dict; `axes` is one matplotlib Axes or, with a `layout`,
a dict of them by name. It may return a sentence: what the picture shows now. The sentence appears below the axes and is
the picture's text for screen readers; an `Alarm` appears there in vermillion.

    def draw(state, axes):
        axes.plot(...)
        axes.set(xlabel="step", ylabel="loss")
        return f"After {state['steps']} steps the loss is ..."

    Explorable(draw, {"steps": slider("steps", 30, 0, 60)})
"""

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from hpcdl.widgets.kit.controls import columns
from hpcdl.widgets.kit.names import Names
from hpcdl.widgets.kit.picture import Picture


class Explorable:
    """A picture and its controls: `draw(state, axes)` with `state[name]` the value of `controls[name]`.

    Every control is an ipywidgets widget with a `value` (see `slider`, `choice`, `stops`, `checkbox`, `player`), so
    that Tab reaches it and the arrow keys move it. Make it the last line of a cell.
    """

    def __init__(
        self,
        draw: Callable,
        controls: dict,
        figsize: tuple[float, float] = (9.6, 4.2),
        layout: Any = None,
        **mosaic: Any,
    ):
        self.picture, self.controls = Picture(draw, figsize, layout, **mosaic), dict(controls)
        grid = columns(self.controls.values(), self.picture.image.width + "px")
        grid.margin = "4px 0 12px 0"
        below = widgets.Box([*self.controls.values(), Names(), self.picture.theme], layout=grid)
        self.view = widgets.VBox([self.picture.frame, below])
        for control in self.controls.values():
            control.observe(self._redraw, "value")
        self._redraw()

    @property
    def state(self) -> dict:
        """Return the value of every control by name."""
        return {name: control.value for name, control in self.controls.items()}

    def _redraw(self, _change=None) -> None:
        # Draw inside the handler, never later on the event loop: while the kernel is busy with one move of a slider the
        # front end holds back and merges the next ones, so a fast hand costs few pictures and the last one is right.
        self.picture.render(lambda: self.state)  # as it is when its turn has come

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return self.picture.still(self.view)
