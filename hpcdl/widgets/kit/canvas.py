"""One Agg figure, drawn again and again into the same pixels, as fast as matplotlib allows."""

import itertools
import struct
import zlib
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import Bbox

from hpcdl.widgets.kit.renderer import LineCanvas

EDGE = 0.08  # inches at the right: the last tick may be wider than it was when the axes were laid out
SPARE = 3  # pixels around a frame: lines have a width


class Canvas:
    """A figure with its axes; `png()` draws it.

    Ticks, labels and grid take most of the time of a drawing and seldom change from one picture to the next. They are
    the frame: kept as pixels, and drawn again only for axes where something that decides their looks has changed.
    """

    def __init__(
        self,
        figsize: tuple[float, float],
        layout: Any = None,  # as of `Figure.subplot_mosaic`
        *,
        bottom: float = 0.0,
        **mosaic: Any,
    ):
        self.figure = Figure(figsize=figsize, layout="constrained")
        engine = self.figure.get_layout_engine()
        assert isinstance(engine, ConstrainedLayoutEngine)  # as asked for
        engine.set(rect=(0, bottom, 1 - EDGE / figsize[0], 1 - bottom))
        self.canvas = LineCanvas(self.figure)
        self.axes = self.figure.subplot_mosaic(layout, **mosaic) if layout else self.figure.add_subplot()
        self._ticks = {axes: _tick_looks(axes) for axes in self.figure.axes}
        self._laid_out = False
        self._frame: dict[Any, tuple] = {}
        self._boxes: dict[Any, Bbox] = {}  # in pixels, where the frame of each axes lies; empty until it is asked for
        self._pixels: Any = None  # of the frame, as the canvas copies them

    def clear(self, visible: bool = True) -> None:
        """Empty every axes and remove objects next to them; hide the axes where `visible` is false."""
        for text in list(self.figure.texts):
            text.remove()
        for axes in self.figure.axes:
            _clear(axes, self._ticks[axes])
            axes.set_visible(visible)

    def forget(self) -> None:
        """Draw everything again the next time."""
        self._frame, self._boxes = {}, {}

    def lay_out(self) -> None:
        """Find room for the labels once: it costs as much as drawing, and axes should not move.

        Room for axes as high as can be: those with an aspect are lower in some pictures and higher in others.
        """
        if not self._laid_out:
            aspects = [(axes, axes.get_aspect()) for axes in self.figure.axes if axes.name == "rectilinear"]
            for axes, _ in aspects:
                axes.set_aspect("auto")
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")
            for axes, aspect in aspects:
                axes.set_aspect(aspect)
            self._laid_out = True

    def png(self) -> bytes:
        """Return the figure as it is now."""
        if all(axes.name == "rectilinear" for axes in self.figure.axes):
            self._draw_over_frame()
        else:
            self.canvas.draw()  # in 3-d and polar axes, data and frame are projected together
        return _png(np.asarray(self.canvas.buffer_rgba()))

    def _draw_over_frame(self) -> None:
        data = [artist for axes in self.figure.axes for artist in _data(axes)] + list(self.figure.texts)
        frame = {axes: _frame(axes) for axes in self.figure.axes}
        if frame != self._frame:
            for artist in data:
                artist.set_visible(False)
            self._draw_frames([axes for axes in frame if self._frame.get(axes) != frame[axes]])
            self._frame, self._pixels = frame, self.canvas.copy_from_bbox(self.figure.bbox)
            for artist in data:
                artist.set_visible(True)
        self.canvas.restore_region(self._pixels)
        for artist in data:
            artist.draw(self.canvas.get_renderer())

    def _draw_frames(self, changed: list) -> None:
        """Redraw the frames of the `changed` axes, or of all axes if frames may overlap."""
        renderer, every = self.canvas.get_renderer(), self.figure.axes
        if len(changed) == len(every):
            self._boxes = {}  # finding them takes time, and helps the next picture only if some axes stay
            return self.canvas.draw()
        if not self._boxes:
            self.canvas.draw()
            self._boxes = {axes: _box(axes, renderer) for axes in every}
            return None
        before, self._boxes = self._boxes, {**self._boxes, **{axes: _box(axes, renderer) for axes in changed}}
        places = [Bbox.union([before[axes], self._boxes[axes]]) for axes in changed]
        stay = [box for axes, box in self._boxes.items() if axes not in changed]
        if any(place.overlaps(box) for place in places for box in stay):
            return self.canvas.draw()
        self.canvas.restore_region(self._pixels)
        for axes, place in zip(changed, places, strict=True):
            self._erase(place)
            axes.draw(renderer)
        return None

    def _erase(self, place: Bbox) -> None:
        pixels = np.asarray(self.canvas.buffer_rgba())
        left, right = (int(np.clip(x, 0, pixels.shape[1])) for x in (place.x0, place.x1))
        top, bottom = (int(np.clip(pixels.shape[0] - y, 0, pixels.shape[0])) for y in (place.y1, place.y0))
        pixels[top:bottom, left:right] = np.round(255 * np.array(to_rgba(self.figure.get_facecolor())))


def _box(axes, renderer) -> Bbox:
    """Return where the frame of the axes lies, in pixels, with some to spare; `axes` have no visible data."""
    axes.apply_aspect()
    tight = axes.get_tightbbox(renderer) if axes.get_visible() else None
    return tight.padded(SPARE) if tight else Bbox.null()


def _clear(axes, ticks) -> None:
    """`axes.clear()`, several times as fast: it recreates every tick, while here they stay unless their style
    changed."""
    if axes.name != "rectilinear":
        axes.clear()
        return
    for artist in _artists(axes):
        artist.remove()
    if _tick_looks(axes) != ticks:
        axes.grid(matplotlib.rcParams["axes.grid"])
    for (axis, which), looks in ticks.items():
        if axis.get_tick_params(which) != looks:
            axis.set_tick_params(which, reset=True, **looks)
    axes.containers.clear()
    axes.set_axis_on()
    axes.relim()
    axes.set_prop_cycle(None)
    if not _has_default_ticks(axes.xaxis):
        axes.set_xscale("linear")
    if not _has_default_ticks(axes.yaxis):
        axes.set_yscale("linear")
    axes.set(aspect="auto", adjustable="box", anchor="C")
    axes.set_xlim(0, 1, auto=True)
    axes.set_ylim(0, 1, auto=True)
    _style_frame(axes)


def _style_frame(axes) -> None:
    """Give the axes the present style's colours and spines, and empty labels and titles."""
    axes.set_facecolor(matplotlib.rcParams["axes.facecolor"])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_label_text("", color=matplotlib.rcParams["axes.labelcolor"])
    for place in filter(axes.get_title, ("left", "center", "right")):
        axes.set_title("", loc=place, color=matplotlib.rcParams["text.color"])
    settings: Any = matplotlib.rcParams  # whose type lists every name: one put together is not among them
    for side, spine in axes.spines.items():
        spine.set_visible(settings[f"axes.spines.{side}"])


def _has_default_ticks(axis) -> bool:
    """Return whether ticks are where matplotlib puts them on a linear axis."""
    defaults = axis.isDefault_majloc, axis.isDefault_minloc, axis.isDefault_majfmt, axis.isDefault_minfmt
    return axis.get_scale() == "linear" and all(defaults)


def _artists(axes) -> list:
    """Return the artists of the axes."""
    legend = [axes.get_legend()] if axes.get_legend() else []
    shapes = [*axes.lines, *axes.patches, *axes.collections, *axes.images]
    return [*shapes, *axes.texts, *axes.artists, *axes.tables, *legend]


def _data(axes) -> list:
    """Return the visible artists of the axes, in the order of drawing."""
    seen = [artist for artist in _artists(axes) if artist.get_visible() and axes.get_visible()]
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
    looks = axis.get_visible(), axis.get_scale(), tuple(axis.get_view_interval())
    label = axis.get_label_text(), axis.label.get_color()
    return (*looks, *label, tuple(major), tuple(minor), labels, axis.get_tick_params())


def _tick_looks(axes) -> dict:
    kinds = itertools.product((axes.xaxis, axes.yaxis), ("major", "minor"))
    return {(axis, which): axis.get_tick_params(which) for axis, which in kinds}


def _png(pixels) -> bytes:
    """RGBA pixels (height, width, 4) as a PNG without transparency, sooner than Pillow: rows stand unfiltered.

    Source: PNG Specification (Third Edition), W3C 2025, sections 5 and 11.
    """
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with the number of its filter: 0, none
    rows[:, 1:].reshape(height, width, 3)[:] = pixels[:, :, :3]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # eight bits for each of red, green, blue
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.data, 1)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))
