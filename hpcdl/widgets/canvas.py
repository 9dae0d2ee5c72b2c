"""One Agg figure, drawn again and again into the same pixels, as fast as matplotlib allows."""

import io

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image


class Canvas:
    """A figure with its axes; `png()` draws it.

    Ticks, labels and grid take most of the time of a drawing and seldom change from one picture to the next. They are
    the frame: kept as pixels, and drawn anew only when something that decides their looks has changed.
    """

    def __init__(self, figsize, layout=None, *, bottom: float = 0.0, **mosaic):
        self.figure = Figure(figsize=figsize, layout="constrained")
        self.figure.get_layout_engine().set(rect=(0, bottom, 1, 1 - bottom))
        self.canvas = FigureCanvasAgg(self.figure)
        self.axes = self.figure.subplot_mosaic(layout, **mosaic) if layout else self.figure.add_subplot()
        self._laid_out, self._frame, self._pixels = False, None, None

    def clear(self, visible: bool = True) -> None:
        """Empty every axes and remove what stands beside them; hide the axes where `visible` is false."""
        for text in list(self.figure.texts):
            text.remove()
        for axes in self.figure.axes:
            axes.clear()
            axes.set_visible(visible)

    def lay_out(self) -> None:
        """Find room for the labels, once: it costs as much as drawing, and axes should not jump about."""
        if not self._laid_out:
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")
            self._laid_out = True

    def png(self) -> bytes:
        """The figure as it is now."""
        if all(axes.name == "rectilinear" for axes in self.figure.axes):
            self._draw_over_frame()
        else:
            self.canvas.draw()  # in 3-d and polar axes, data and frame are projected together
        out, pixels = io.BytesIO(), np.asarray(self.canvas.buffer_rgba())
        Image.fromarray(pixels).convert("RGB").save(out, "png", compress_level=1)  # faster than level 6, 10 % larger
        return out.getvalue()

    def _draw_over_frame(self) -> None:
        data = [artist for axes in self.figure.axes for artist in _data(axes)] + list(self.figure.texts)
        frame = [_frame(axes) for axes in self.figure.axes]
        if frame != self._frame:
            for artist in data:
                artist.set_visible(False)
            self.canvas.draw()
            self._frame, self._pixels = frame, self.canvas.copy_from_bbox(self.figure.bbox)
            for artist in data:
                artist.set_visible(True)
        self.canvas.restore_region(self._pixels)
        for artist in data:
            artist.draw(self.canvas.get_renderer())


def _data(axes) -> list:
    """What was put into the axes and is to be seen, in the order of drawing."""
    artists = [*axes.lines, *axes.patches, *axes.collections, *axes.images, *axes.texts, *axes.artists, *axes.tables]
    artists += [legend] if (legend := axes.get_legend()) else []
    seen = [artist for artist in artists if artist.get_visible() and axes.get_visible()]
    return sorted(seen, key=lambda artist: artist.get_zorder())


def _frame(axes) -> tuple:
    """Everything that decides how the axes look without their data."""
    titles = [axes.get_title(loc=place) for place in ("left", "center", "right")]
    spines = [spine.get_visible() for spine in axes.spines.values()]
    looks = (axes.get_visible(), axes.axison, axes.get_position().bounds, axes.get_facecolor(), titles, spines)
    return (*looks, _axis_frame(axes.xaxis), _axis_frame(axes.yaxis))


def _axis_frame(axis) -> tuple:
    major, minor = axis.get_majorticklocs(), axis.get_minorticklocs()
    labels = axis.get_major_formatter().format_ticks(major), axis.get_minor_formatter().format_ticks(minor)
    looks = axis.get_visible(), axis.get_scale(), tuple(axis.get_view_interval()), axis.get_label_text()
    return (*looks, tuple(major), tuple(minor), labels, axis.get_tick_params())
