"""Explorables: one picture per file, a pure `draw(state, axes)` and an `explorable()` that gives it sliders.

`explorable` holds the shell (controls, one canvas redrawn in place, a still picture where there is no front end),
`canvas` the fast drawing, `style` the one style sheet, `waiting` what a cell says before its exercise is solved.
"""

from hpcdl.widgets.explorable import Explorable, LiveFigure
from hpcdl.widgets.waiting import when_solved

__all__ = ["Explorable", "LiveFigure", "when_solved"]
