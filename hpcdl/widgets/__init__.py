"""Explorables: one picture per file, a pure `draw(state, axes)` and a function that gives it sliders.

`explorable` holds the shell (controls, one canvas redrawn in place, a still picture where there is no front end),
`style` the one style sheet, `waiting` what a cell says before its exercise is solved. To add a picture, write `hpcdl/widgets/name.py` with `draw` and a function that returns an
`Explorable`, and name it here; `tests/hpcdl/widgets` then draws it at every corner of its controls.
"""

from hpcdl.widgets.explorable import Explorable, LiveFigure
from hpcdl.widgets.waiting import when_solved

__all__ = ["Explorable", "LiveFigure", "when_solved"]
