"""Many short labels as one artist: a Text costs about a millisecond, and a network shows dozens of numbers."""

from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Affine2D

from hpcdl.widgets.kit.style import DPI


def words(axes: Axes, labels: Any, size: float, weight: str = "normal") -> None:
    """Write `labels`, (x, y, text, colour) each, centred at their places in `axes`; `size` in points."""
    paths = [_word(text, size, weight) for _, _, text, _ in labels]
    collection = PathCollection(
        paths,
        offsets=[(x, y) for x, y, _, _ in labels],
        offset_transform=axes.transData,
        facecolors=[colour for *_, colour in labels],
        linewidths=0,
        zorder=3,
    )
    collection.set_transform(Affine2D().scale(DPI / 72))
    axes.add_collection(collection, autolim=False)


def _word(text: str, size: float, weight: str) -> Path:
    """Return the outlines of a text, centred, in points."""
    glyphs = [_glyph(character, size, weight) for character in text]
    ends = np.cumsum([advance for _, _, advance in glyphs])
    starts = ends - [advance for _, _, advance in glyphs] - ends[-1] / 2
    middle = 0.36 * size  # half the height of a digit
    vertices = [np.add(points, (start, -middle)) for (points, _, _), start in zip(glyphs, starts, strict=True)]
    return Path(np.concatenate(vertices), np.concatenate([codes for _, codes, _ in glyphs]))


@lru_cache(maxsize=512)
def _glyph(character: str, size: float, weight: str):
    """`(vertices, codes, advance)` of one character, in points."""
    font = FontProperties(weight=weight, size=size)
    vertices, codes = text_to_path.get_text_path(font, character)
    advance, _, _ = text_to_path.get_text_width_height_descent(character, font, ismath=False)
    scale = size / text_to_path.FONT_SCALE
    return np.reshape(vertices, (-1, 2)) * scale, np.asarray(codes, dtype=np.uint8), advance
