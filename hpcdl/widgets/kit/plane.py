"""The plane of two inputs in two classes: its sides tinted, lines, and points. Shared by the pictures of lab 03."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from hpcdl.widgets.kit import palette
from hpcdl.widgets.kit.style import BLUE, CARD, INK, ORANGE

Points = Sequence[tuple[float, float, float]]  # x_1, x_2 and the label

LIMIT = 3.0  # the plane shows x_1 and x_2 from -LIMIT to LIMIT
SIDES = (palette.named("minus side"), palette.named("plus side"))  # those that are called -1 and +1


def positions(points: Points) -> torch.Tensor:
    """(x_1, x_2) of the points, (n, 2) float64."""
    return torch.tensor(points, dtype=torch.float64).reshape(-1, 3)[:, :2]


def shade_sides(
    axes: Axes, decide: Callable[[torch.Tensor], torch.Tensor], limit: float = LIMIT, pixels: int = 108
) -> None:
    """Tint the square |x_1|, |x_2| <= limit by `decide`, which gives -1 or +1 for each row of (n, 2).

    108 pixels a side: a third of those on the screen, so that matplotlib takes its short way (3 ms for 8 ms at 120).
    """
    ticks = (torch.arange(pixels, dtype=torch.float64) + 0.5) * (2 * limit / pixels) - limit
    grid = torch.cartesian_prod(ticks, ticks)
    sides = decide(grid).reshape(pixels, pixels).T.numpy()
    square = (-limit, limit, -limit, limit)
    looks: dict[str, Any] = {"cmap": ListedColormap(SIDES), "vmin": -1, "vmax": 1, "interpolation": "nearest"}
    axes.imshow(sides, extent=square, origin="lower", **looks)
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", anchor="N")
    axes.grid(False)


def draw_line(axes: Axes, w: torch.Tensor, **style: Any) -> None:
    """Draw the line w_0 + w_1 x_1 + w_2 x_2 = 0, if there is one."""
    w0, w1, w2 = w.tolist()
    if w1 == w2 == 0:
        return
    square = w1 * w1 + w2 * w2
    foot = (-w0 * w1 / square, -w0 * w2 / square)  # the point of the line that is nearest to the origin
    axes.axline(foot, (foot[0] - w2 / square**0.5, foot[1] + w1 / square**0.5), **style)


def draw_arrow(axes: Axes, w: torch.Tensor, length: float = 0.9, limit: float = LIMIT) -> None:
    """Draw the direction (w_1, w_2), from the line if it is near enough to the middle."""
    w0, w1, w2 = w.tolist()
    size = (w1 * w1 + w2 * w2) ** 0.5
    if size == 0 or abs(w0) / size > limit - length:
        return
    foot = (-w0 * w1 / size**2, -w0 * w2 / size**2)
    tip = (foot[0] + length * w1 / size, foot[1] + length * w2 / size)
    axes.annotate("", tip, foot, arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 2, "shrinkA": 0})


def draw_points(axes: Axes, points: Points, called: list[float]) -> None:
    """+1 as blue discs, -1 as orange squares; hollow where they are `called` wrong."""
    for label, marker, color in ((1, "o", BLUE), (-1, "s", ORANGE)):
        for right, face in ((True, color), (False, CARD)):
            own = [(x1, x2) for (x1, x2, y), z in zip(points, called, strict=True) if y == label and (y == z) == right]
            at = zip(*own, strict=True) if own else ((), ())
            axes.plot(*at, marker, color=color, markersize=8.5, markerfacecolor=face, markeredgewidth=1.8)
