"""Whether the page is dark: its front end tells, and pictures are painted in the colours of that theme."""

from collections.abc import Callable
from pathlib import Path

import anywidget
import traitlets

from hpcdl.widgets.kit import palette
from hpcdl.widgets.kit.turns import TURNS


class Theme(anywidget.AnyWidget):
    """Invisible; it changes the palette of this kernel to the page's, and then calls `repaint`.

    One kernel has one theme, that of the page which told last: plots of a notebook's own cells follow it too.
    """

    _esm = Path(__file__).with_name("theme.js")
    dark = traitlets.Bool().tag(sync=True)

    def __init__(self, repaint: Callable[[], None]):
        super().__init__(dark=palette.is_dark())
        self.repaint = repaint

    @traitlets.observe("dark")
    def _follow(self, change) -> None:
        if hasattr(self, "repaint"):
            TURNS.take(palette, lambda: palette.choose(dark=change.new))  # not in the middle of a drawing
            self.repaint()
