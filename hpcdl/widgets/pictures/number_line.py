"""The numbers of a format around x: its two neighbours, which is nearer, and the odds of each at random."""

import numpy as np
import torch
from matplotlib.axes import Axes

from hpcdl.numerics.rounding import Fixed, Format, neighbours, round_nearest
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import choice, slider, stops
from hpcdl.widgets.kit.curves import signed
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.number_formats import FORMATS, numbers, spacing
from hpcdl.widgets.kit.style import Alarm

WIDTHS = (0.002, 0.01, 0.05, 0.2, 1.0, 4.0, 20.0)
BAR = 0.014  # width of a bar, as a share of the line that is seen
FEW = 300  # ticks that can be told apart
SIZES = np.geomspace(2.0**-10, 12, 600)  # |x| on the right


def explorable() -> Explorable:
    """The format, x, and how much of the line is seen."""
    controls = {
        "format": choice("format", list(FORMATS), "fixed point ⟨4, 4⟩"),
        "x": slider("x", 1.30, -10.0, 10.0, 0.01),
        "width": stops("seen of the line", WIDTHS, 1.0),
    }
    return Explorable(draw, controls, layout=[["line", "spacing"]], width_ratios=[1.7, 1])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    fmt, x, width = FORMATS[state["format"]], state["x"], state["width"]
    lower, upper = (float(t) for t in neighbours(torch.tensor(x), fmt))
    nearest = float(round_nearest(torch.tensor(x), fmt))
    up = (x - lower) / (upper - lower) if upper > lower else 0.0
    _line(axes["line"], fmt, x, width, {lower: 1 - up, upper: up} if upper > lower else {lower: 1.0}, nearest)
    _spacing(axes["spacing"], fmt, x)
    return sentence(fmt, x, lower, upper, nearest, up)


def _line(axes, fmt: Format, x: float, width: float, odds: dict[float, float], nearest: float) -> None:
    left, right = x - width / 2, x + width / 2
    seen = numbers(fmt)
    seen = seen[np.searchsorted(seen, left) : np.searchsorted(seen, right)]
    axes.axhline(0, color=style.INK, linewidth=1)
    if len(seen) > FEW:
        axes.fill_between([seen[0], seen[-1]], -0.06, 0.06, color=style.CONTOUR)
    else:
        axes.vlines(seen, -0.06, 0.06, color=style.INK, linewidth=1)
    _odds(axes, odds, left, right)
    axes.plot(x, 0, "v", color=style.INK, markersize=11, label="x")
    axes.plot(nearest, -0.16, "^", color=style.GREEN, markersize=10, label="to nearest")
    axes.set(xlim=(left, right), ylim=(-0.3, 1.15), xlabel="numbers", ylabel="odds at random")
    style.ticks(axes.yaxis, [0, 0.5, 1], ["0", "1/2", "1"])
    places = [x + width * share for share in (-0.4, -0.2, 0, 0.2, 0.4)]
    style.ticks(axes.xaxis, places, [signed(round(place, 7), 6) for place in places])
    axes.set_title("x between its neighbours")
    axes.legend(loc="lower right", bbox_to_anchor=(1.02, 0.99), ncols=2, handletextpad=0.1, columnspacing=1)


def _odds(axes, odds: dict[float, float], left: float, right: float) -> None:
    """A bar for each neighbour, its odds beside it; an arrow to a neighbour that is not seen.

    The two bars stand side by side where the neighbours are nearer to each other than the bars are wide.
    """
    bar = BAR * (right - left)
    apart = max(0.0, bar - (max(odds) - min(odds))) / 2 if len(odds) > 1 else 0.0
    for value, colour in zip(odds, (style.BLUE, style.ORANGE), strict=False):
        side, p = 1 if value == max(odds) else -1, odds[value]
        if left <= value <= right:
            axes.bar(value + side * apart, p, width=bar, color=colour)
            place, ha, text = value + side * (apart + bar), "left" if side > 0 else "right", f"{100 * p:.0f} %"
        else:
            below = value < left
            place, ha = (left, "left") if below else (right, "right")
            text = f"◀ {100 * p:.0f} % at {signed(value, 6)}" if below else f"{100 * p:.0f} % at {signed(value, 6)} ▶"
        axes.text(place, max(p - 0.05, 0.09), f" {text} ", ha=ha, color=style.INK)


def _spacing(axes, fmt: Format, x: float) -> None:
    gaps = fmt.quantum(torch.from_numpy(SIZES).float()).numpy()
    axes.loglog(SIZES, gaps, color=style.BLUE)
    size = min(max(abs(x), SIZES[0]), SIZES[-1])
    axes.plot(size, spacing(size, fmt), "o", color=style.INK, markersize=9)
    axes.set(xlim=(SIZES[0], SIZES[-1]), ylim=(2.0**-21, 2), xlabel="|x|", ylabel="spacing ε")
    style.ticks(axes.xaxis, [2.0**k for k in range(-9, 4, 3)], ["1/512", "1/64", "1/8", "1", "8"])
    style.ticks(axes.yaxis, [2.0**k for k in range(-20, 2, 5)], ["2⁻²⁰", "2⁻¹⁵", "2⁻¹⁰", "2⁻⁵", "1"])
    axes.set_title("The spacing, by size")


def sentence(fmt: Format, x: float, lower: float, upper: float, nearest: float, up: float) -> str:
    """The two neighbours, and what each way of rounding makes of x."""
    if not fmt.min <= x <= fmt.max and isinstance(fmt, Fixed):
        return Alarm(f"{signed(x)} lies beyond the last number, {signed(lower, 6)}. It saturates: it becomes that.")
    if lower == upper:
        return f"{signed(x)} is a number of the format. It stays what it is, to nearest and at random."
    values = [signed(value, 7) for value in (lower, upper, nearest)]
    return (
        f"{signed(x)} lies between {values[0]} and {values[1]}, ε = {upper - lower:.3g}. To nearest: {values[2]}. "
        f"At random: up with odds {100 * up:.0f} %, down with {100 * (1 - up):.0f} %."
    )
