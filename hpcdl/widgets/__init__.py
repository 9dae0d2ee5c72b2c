"""Explorables: one picture per file, a pure `draw(state, axes)` and a function that gives it sliders.

`explorable` holds the shell (controls, one canvas redrawn in place, a still picture where there is no front end),
`style` the one style sheet. To add a picture, write `hpcdl/widgets/name.py` with `draw` and a function that returns an
`Explorable`, and name it here; `tests/hpcdl/widgets` then draws it at every corner of its controls.
"""

from hpcdl.widgets.explorable import Explorable, LiveFigure

__all__ = ["Explorable", "LiveFigure"]
