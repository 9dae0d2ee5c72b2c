"""Text written line by line stands where matplotlib puts it, glyph by glyph, with the same ink."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hpcdl.widgets.kit.renderer import LineCanvas

TEXTS = {
    "a sentence": {"s": "After 34 steps the loss is 1.2e-05 above its minimum: λmax ≤ β × 3", "va": "center"},
    "several lines": {"s": "one line, gypsy\n  another, indented — here\n3", "size": 12},
    "bold and coloured": {"s": "lr = 0.10 diverges", "weight": "bold", "color": "#B04A00", "size": 15},
    "half seen": {"s": "half seen", "alpha": 0.5},
    "from the right": {"s": "42 %", "ha": "right", "size": 9},
    "rotated": {"s": "loss", "rotation": 90},
    "mathematics": {"s": "$x^2$ and more"},
    "spaces": {"s": " "},
    "nothing": {"s": ""},
}


def ink(canvas, text: dict) -> np.ndarray:
    """How far each pixel is from white, 0 to 255, after the text was drawn among others in the same font."""
    figure = Figure(figsize=(7, 2), dpi=100)
    canvas = canvas(figure)
    figure.text(0.02, 0.1, "another", rotation=90, color="white")
    figure.text(0.5, 0.5, **text)
    figure.text(0.02, 0.1, "another", rotation=45, color="white")
    canvas.draw()
    canvas.draw()  # a second drawing into the same pixels is the same
    return 255 - np.asarray(canvas.buffer_rgba())[:, :, :3].min(axis=2).astype(int)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_stands_where_matplotlib_puts_it_with_the_same_ink(text):
    theirs, ours = ink(FigureCanvasAgg, text), ink(LineCanvas, text)
    assert ours.sum() == pytest.approx(theirs.sum(), rel=0.03)
    for axis in (0, 1):
        places = [np.flatnonzero(pixels.sum(axis=axis) > 40) for pixels in (theirs, ours)]
        ends = [place[[0, -1]] if len(place) else np.zeros(2) for place in places]
        assert np.abs(ends[0] - ends[1]).max() <= 1  # pixel: a line begins at a whole one


def test_missing_character_is_left_to_matplotlib():
    both = {"s": "rate λ", "family": ["cmr10", "DejaVu Sans"]}
    assert ink(LineCanvas, both).sum() == ink(FigureCanvasAgg, both).sum()
