"""A surface z = f(x, y): the slope of each slice is a partial derivative, the two together are the gradient."""

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from contourpy import contour_generator
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb

from hpcdl.numerics.dual import partials
from hpcdl.widgets.kit import palette, style
from hpcdl.widgets.kit.controls import choice, slider
from hpcdl.widgets.kit.curves import signed
from hpcdl.widgets.kit.explorable import Explorable

SURFACES = {
    "x² + xy + y²": lambda x, y: x * x + x * y + y * y,
    "x² − y² (a saddle)": lambda x, y: x * x - y * y,
    "3 sin x · cos y": lambda x, y: 3 * x.sin() * y.cos(),
    "y (a slope)": lambda x, y: y + 0 * x,
}
REACH, CELLS = 2.0, 16  # the ground runs from -2 to 2; the surface is drawn in 16 x 16 tiles
ARROW = 0.25  # length of an arrow on the map for a slope of 1
POINTED = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 16}
ELEVATION = math.radians(28)  # of the eye


def explorable() -> Explorable:
    """Surface, point, the direction to walk in, and the side to look from."""
    controls = {
        "surface": choice("z =", list(SURFACES), "x² + xy + y²"),
        "x": slider("x", 1.0, -2.0, 2.0, 0.05),
        "y": slider("y", 0.5, -2.0, 2.0, 0.05),
        "heading": slider("walk towards (°)", 90, 0, 360, 5),
        "turn": slider("turn the picture (°)", -60, -180, 180, 5),
    }
    return Explorable(draw, controls, figsize=(9.6, 4.7), layout=[["surface", "map"]], width_ratios=[1.15, 1])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    f, x, y = SURFACES[state["surface"]], state["x"], state["y"]
    here = torch.tensor([x, y], dtype=torch.float64)
    slopes = tuple(float(slope) for slope in partials(f, *here))
    _surface(axes["surface"], state["surface"], x, y, slopes, math.radians(state["turn"]))
    _map(axes["map"], state["surface"], x, y, slopes, math.radians(state["heading"]))
    return sentence(x, y, slopes, state["heading"])


@cache
def ground(name: str):
    """Grid coordinates (n,), heights (n, n) with rows along y, and the contour lines, of a surface."""
    line = torch.linspace(-REACH, REACH, 4 * CELLS + 1, dtype=torch.float64)
    z = SURFACES[name](line[None, :], line[:, None]).expand(len(line), len(line)).numpy()
    levels = np.linspace(z.min(), z.max(), 14)[1:-1]
    contours = contour_generator(line.numpy(), line.numpy(), z).multi_lines(levels)
    return line.numpy(), z, [path for paths in contours for path in paths]


def projected(points: Any, turn: float, height: float):
    """Points (..., 3) as seen from the side `turn`: (..., 2); `height` scales z."""
    x, y, z = np.moveaxis(np.asarray(points, dtype=float), -1, 0)
    right, away = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)
    return np.stack([right, away * math.sin(ELEVATION) + height * z * math.cos(ELEVATION)], axis=-1), away


def _surface(axes, name: str, x: float, y: float, slopes, turn: float) -> None:
    line, z, _ = ground(name)
    height, floor = 2.4 / np.ptp(z), z.min()

    def see(*points):
        return projected(np.stack(np.broadcast_arrays(*points), axis=-1), turn, height)[0]

    _tiles(axes, line[::4], z[::4, ::4], turn, height)
    here = float(SURFACES[name](*torch.tensor([x, y], dtype=torch.float64)))
    column, row = (torch.tensor(value, dtype=torch.float64) for value in (x, y))
    along = torch.from_numpy(line)
    axes.plot(*see(line, y, SURFACES[name](along, row).numpy()).T, color=style.BLUE, linewidth=2.6)
    axes.plot(*see(x, line, SURFACES[name](column, along).numpy()).T, color=style.GREEN, linewidth=2.6)
    step = np.array([-0.7, 0.7])
    axes.plot(*see(x + step, y, here + slopes[0] * step).T, color=style.INK, linewidth=1.4)
    axes.plot(*see(x, y + step, here + slopes[1] * step).T, color=style.INK, linewidth=1.4)
    axes.plot(*see(x, y, np.array([floor, here])).T, ":", color=style.GREY, linewidth=1.2)
    axes.plot(*see(x, y, here), "o", color=style.INK, markersize=8)
    _ground(axes, see, floor, turn)
    axes.set(xlim=(-3.1, 3.1), ylim=(-2.5 + _middle(z, height), 2.5 + _middle(z, height)))
    axes.set_title(f"z = {name.split(' (')[0]} and its two slices")
    axes.set_axis_off()


def _middle(z, height: float) -> float:
    """The height of the picture's middle."""
    return height * math.cos(ELEVATION) * (z.min() + z.max()) / 2


def _tiles(axes, line, z, turn: float, height: float) -> None:
    """The surface in tiles, those farthest away first; higher is darker."""
    xs, ys = np.meshgrid(line, line)
    flat, away = projected(np.stack([xs, ys, z], axis=-1), turn, height)
    corners = [(slice(None, -1), slice(None, -1)), (slice(None, -1), slice(1, None))]
    corners += [(slice(1, None), slice(1, None)), (slice(1, None), slice(None, -1))]
    tiles = np.stack([flat[corner] for corner in corners], axis=-2).reshape(-1, 4, 2)
    order = np.argsort(-sum(away[corner] for corner in corners).ravel())
    level = (sum(z[corner] for corner in corners).ravel() / 4 - z.min()) / np.ptp(z)
    low, high = np.array(to_rgb(palette.named("valley"))), np.array(to_rgb(palette.named("hill")))
    colors = low + level[:, None] * (high - low)
    corners_of_each: Any = tiles[order]  # an array is faster than the sequence of the declared type
    axes.add_collection(
        PolyCollection(corners_of_each, facecolors=colors[order], edgecolors=style.CARD, linewidths=0.6)
    )


def _ground(axes, see, floor: float, turn: float) -> None:
    """The two edges of the ground that are nearest to the eye, with the names of the axes."""
    front_x, front_y = (-REACH * math.copysign(1, part) for part in (math.sin(turn), math.cos(turn)))
    for name, a, b in (("x", (-REACH, front_y), (REACH, front_y)), ("y", (front_x, -REACH), (front_x, REACH))):
        start, end = see(*np.array([a, b]).T, floor)
        axes.annotate("", end, start, arrowprops={**POINTED, "color": style.GREY, "linewidth": 1.2}, zorder=0)
        axes.text(*see(*(1.14 * np.mean([a, b], axis=0)), floor), name, ha="center", va="top")


def _map(axes, name: str, x: float, y: float, slopes, heading: float) -> None:
    _, _, contours = ground(name)
    axes.add_collection(LineCollection(contours, colors=style.CONTOUR, linewidths=1))
    axes.axhline(y, color=style.BLUE, linewidth=1, alpha=0.6)
    axes.axvline(x, color=style.GREEN, linewidth=1, alpha=0.6)
    _arrow(axes, x, y, slopes[0], 0, style.BLUE)
    _arrow(axes, x, y, 0, slopes[1], style.GREEN)
    _arrow(axes, x, y, slopes[0], slopes[1], style.VERMILLION)
    ahead = (0.55 * math.cos(heading), 0.55 * math.sin(heading))
    axes.plot([x, x + ahead[0]], [y, y + ahead[1]], ":", color=style.INK)
    axes.plot(x, y, "o", color=style.INK, markersize=8)
    axes.set(xlim=(-1.2 * REACH, 1.2 * REACH), ylim=(-1.2 * REACH, 1.2 * REACH), aspect="equal", xlabel="x", ylabel="y")
    axes.set_title("From above: the gradient")
    axes.grid(False)


def _arrow(axes, x: float, y: float, right: float, up: float, color: str) -> None:
    if math.hypot(right, up) > 0.05:
        tip = (x + ARROW * right, y + ARROW * up)
        axes.annotate("", tip, (x, y), arrowprops={**POINTED, "color": color, "linewidth": 2.4}, annotation_clip=False)


def sentence(x: float, y: float, slopes: Any, heading: int) -> str:
    """Both partial derivatives, the gradient, and the slope on the way the student walks."""
    length = math.hypot(*slopes)
    where = f"At ({signed(x)}, {signed(y)}): ∂z/∂x = {signed(slopes[0])}, ∂z/∂y = {signed(slopes[1])}."
    if length < 1e-9:
        return f"{where} The gradient is zero. Minimum, maximum or saddle?"
    angle = math.radians(heading)
    walk = slopes[0] * math.cos(angle) + slopes[1] * math.sin(angle)
    uphill = math.degrees(math.atan2(slopes[1], slopes[0])) % 360
    return f"{where} Slope towards {heading}°: {signed(walk)}; steepest: {signed(length)}, towards {uphill:.0f}°."
