"""An Agg renderer that draws a line of text with one call of FreeType; matplotlib 3.11 draws glyph by glyph, in
Python."""

from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg, get_hinting_flag
from matplotlib.font_manager import findfont, get_font


class LineRenderer(RendererAgg):
    """Draws plain horizontal text line by line; matplotlib draws rotated text and mathematics."""

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ):
        """Draw the line `s` at (x, y), in pixels from the top left; y is the baseline."""
        path = findfont(prop)
        if ismath or angle or not _has_all(path, s):
            return super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)
        cover, left, below = _line(path, prop.get_size_in_points(), self.dpi, s, gc.get_antialiased())
        red, green, blue, alpha = gc.get_rgb()
        ink = np.empty((*cover.shape, 4), np.uint8)
        ink[..., :3] = np.round(255 * np.array([red, green, blue]))
        ink[..., 3] = np.round(cover * alpha)
        self.draw_image(gc, round(x + left), round(self.height - y - below), ink[::-1])


class LineCanvas(FigureCanvasAgg):
    """A canvas with that renderer, of fixed size."""

    renderer = None

    def get_renderer(self):
        """Return the canvas's only renderer."""
        if self.renderer is None:
            self.renderer = LineRenderer(*self.get_width_height(physical=True), self.figure.dpi)
        return self.renderer


@lru_cache(maxsize=512)
def _has_all(path: str, line: str) -> bool:
    """Return whether the font has every character."""
    font = get_font(path)
    return all(font.get_char_index(ord(character)) for character in line)


@lru_cache(maxsize=512)  # 7 MB of long captions at most: labels repeat in each picture
def _line(path: str, size: float, dpi: float, line: str, antialiased: bool) -> tuple[np.ndarray, float, float]:
    """Return how much of each pixel the line covers, 0 to 255, from the top row down, and its offset right of and below
    the origin in pixels."""
    font = get_font(path)
    font.clear()  # other texts have used this font
    font.set_size(size, dpi)
    font.set_text(line, 0, flags=get_hinting_flag())
    font.draw_glyphs_to_bitmap(antialiased=antialiased)
    below = font.get_descent() / 64 + 1  # the image ends with an empty row
    return np.array(font.get_image()), font.get_bitmap_offset()[0] / 64, below
