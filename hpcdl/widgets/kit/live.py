"""A picture that moves while a computation runs."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import ipywidgets as widgets
from IPython.display import display

from hpcdl.widgets.kit.picture import Picture


class LiveFigure(Picture):
    """A picture that moves while a computation runs: `show()` once, then `update(state)` as often as you like.

    Updates closer together than `seconds` are merged, so that drawing does not slow the computation; the last one is
    drawn by `finish()`, or at the end of the `with` block:

        with LiveFigure(draw) as live:
            for record in cluster.stream(...):
                live.update(record)
    """

    def __init__(
        self,
        draw: Callable,
        figsize: tuple[float, float] = (9.6, 4.2),
        layout: Any = None,
        *,
        seconds: float = 0.1,
        **mosaic: Any,
    ):
        super().__init__(draw, figsize, layout, **mosaic)
        self.view = widgets.VBox([self.frame, self.theme])
        self.seconds, self._drawn_at, self._pending, self._shown = seconds, 0.0, False, None
        self.state: dict = {}

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
        return self.still(self.view)

    def __enter__(self) -> "LiveFigure":
        self.show()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and self._shown is not None and not (self._pending or self._drawn_at):
            self._shown.update({"text/plain": ""}, raw=True)  # an unsolved exercise gave no number: no empty frame
        else:
            self.finish()
