"""Tables of coloured cells with short labels: images, matrices and windows as a student draws them on squared paper."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba_array

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.words import words


def paper(axes: Axes, rows: float, columns: float) -> None:
    """Room for tables of so many rows and columns, counted from the top left, without scales."""
    axes.set(xlim=(-0.1, columns + 0.1), ylim=(rows + 0.1, -0.1), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        style.ticks(axis, [], [])
    axes.grid(False)
    axes.spines[:].set_visible(False)


def table(axes: Axes, labels: Any, colours: Any, size: float = 13, top: float = 0) -> None:
    """Cells from row `top` on: `labels`, rows of strings, and `colours` (rows, columns); `size` in points."""
    rows, columns = np.shape(colours)
    colours = to_rgba_array(np.ravel(colours))[:, :3].reshape(rows, columns, 3)
    axes.imshow(colours, extent=(0, columns, top + rows, top), aspect="equal", interpolation="nearest", zorder=1)
    across = [[(0, top + i), (columns, top + i)] for i in range(rows + 1)]
    down = [[(j, top), (j, top + rows)] for j in range(columns + 1)]
    axes.add_collection(LineCollection([*across, *down], colors=style.CONTOUR, linewidths=0.7, zorder=2), autolim=False)
    places = [(j + 0.5, top + i + 0.5, labels[i][j], style.INK) for i in range(rows) for j in range(columns)]
    if places := [place for place in places if place[2]]:
        words(axes, places, size)


def frame(axes: Axes, row: float, column: float, height: float, width: float, colour: str = style.VERMILLION) -> None:
    """A frame round some cells."""
    xs, ys = [column, column + width, column + width, column, column], [row, row, row + height, row + height, row]
    axes.plot(xs, ys, color=colour, linewidth=2.6, zorder=4, solid_joinstyle="miter")
