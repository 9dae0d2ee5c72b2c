"""Names for screen readers on the controls of a picture."""

from pathlib import Path

import anywidget


class Names(anywidget.AnyWidget):
    """Invisible; in a box of controls it gives each slider, number and play button its label as accessible name."""

    _esm = Path(__file__).with_name("names.js")
