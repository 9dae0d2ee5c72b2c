"""A secant becomes the tangent as h shrinks, until h is too small for the machine: the derivative as a limit."""

import math

import torch
from matplotlib.axes import Axes

from hpcdl.numerics.derivatives import RULES
from hpcdl.numerics.dual import derivatives
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import checkbox, choice, log_slider, slider
from hpcdl.widgets.kit.curves import CURVES, point, signed
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import Alarm

REACH = 3.0  # the curve is drawn from -3 to 3
STEPS = torch.logspace(-17, 0.3, 174, dtype=torch.float64)  # ten steps to a decade
POINTS = {"forward": (0, 1), "central": (-1, 1)}  # the secant's two points, in units of h from x


def explorable() -> Explorable:
    """Curve, point, step and kind of secant; the microscope magnifies by 1/h."""
    controls = {
        "h": log_slider("h", 1.0, 1e-17, 2.0),
        "x": slider("x", 0.5, -2.0, 2.0, 0.05),
        "curve": choice("f(x) =", list(CURVES), "sin x"),
        "rule": choice("secant", {"from x to x + h": "forward", "from x − h to x + h": "central"}, "forward"),
        "microscope": checkbox("microscope: magnify by 1/h", False),
    }
    return Explorable(draw, controls, layout=[["curve", "slopes"]], width_ratios=[1.2, 1])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    f, x, h, quotient = CURVES[state["curve"]], point(state["x"]), state["h"], RULES[state["rule"]].quotient
    y, tangent = (float(d) for d in derivatives(f, x))
    if not math.isfinite(y):
        return _nothing(axes, Alarm(f"{state['curve']} has no value at x = {signed(float(x))}: move x."))
    if h == 0:
        return _nothing(axes, Alarm("h = 0: both points are one, and 0/0 is no slope. The derivative is a limit."))
    slope = float(quotient(f, x, point(h)))
    ends = [(k * h, f(x + k * h)) for k in POINTS[state["rule"]]]
    if state["microscope"]:
        _magnified(axes["curve"], f, x, h, tangent, slope, ends)
    else:
        _curve(axes["curve"], f, float(x), y, tangent, slope, ends)
    _slopes(axes["slopes"], quotient(f, x, STEPS), tangent, slope, h)
    return sentence(state, tangent, slope)


def _curve(axes, f, x: float, y: float, tangent: float, slope: float, ends) -> None:
    xs = torch.linspace(-REACH, REACH, 601, dtype=torch.float64)
    ys = f(xs)
    axes.plot(xs, ys.masked_fill(ys.abs() > 20, math.nan), color=style.INK, linewidth=1.6)
    _line(axes, x, y, tangent, color=style.GREY, linestyle=(0, (4, 3)), linewidth=1.6, label="tangent")
    _line(axes, x + ends[0][0], float(ends[0][1]), slope, color=style.BLUE, label="secant")
    for step, value in ends:
        axes.plot(x + step, value, "o", color=style.BLUE, markersize=8)
    axes.plot(x, y, "o", color=style.INK, markersize=8)
    low, high = (float(q) for q in torch.quantile(ys[ys.isfinite()], torch.tensor([0.04, 0.96], dtype=torch.float64)))
    room = 0.35 * (high - low) + 0.3
    axes.set(xlim=(-REACH, REACH), ylim=(low - room, high + room), xlabel="x", ylabel="f(x)")
    style.title_over_legend(axes, "The secant through two points")


def _line(axes, x: float, y: float, slope: float, **looks) -> None:
    """The straight line through (x, y); nothing where it has no slope."""
    if math.isfinite(slope) and math.isfinite(y):
        axes.plot([-REACH, REACH], [y + slope * (-REACH - x), y + slope * (REACH - x)], **looks)


def _magnified(axes, f, x, h: float, tangent: float, slope: float, ends) -> None:
    """The neighbourhood of x in units of h: what float64 sees of the curve there."""
    t = torch.linspace(-2, 2, 401, dtype=torch.float64)
    axes.plot(t, (f(x + t * h) - f(x)) / h, color=style.INK, linewidth=1.6, label="f, as float64 computes it")
    if math.isfinite(tangent):
        axes.plot(t, tangent * t, color=style.GREY, linestyle=(0, (4, 3)), linewidth=1.6, label="tangent")
    start, rise = ends[0][0] / h, (ends[0][1] - f(x)) / h
    axes.plot(t, rise + slope * (t - start), color=style.BLUE, label="secant")
    for step, value in ends:
        axes.plot(step / h, (value - f(x)) / h, "o", color=style.BLUE, markersize=8)
    reach = 2.4 * 2.0 ** max(0, math.ceil(math.log2(abs(tangent)))) if tangent and math.isfinite(tangent) else 2.4
    axes.set(xlim=(-2, 2), ylim=(-reach, reach), xlabel="distance from x, in units of h", ylabel="rise, in units of h")
    if reach > 100:
        axes.tick_params(axis="y", labelsize=8.5)  # as wide as the usual ticks: the label stays on the picture
    style.title_over_legend(axes, "Magnified by 1/h")


def _slopes(axes, slopes, tangent: float, slope: float, h: float) -> None:
    centre = tangent if math.isfinite(tangent) else 0.0
    room = 1.2 * max(1.0, abs(centre))
    if math.isfinite(tangent):
        axes.axhline(tangent, color=style.GREY, linestyle=(0, (4, 3)), linewidth=1.6)
    axes.semilogx(STEPS, slopes.clamp(centre - 2 * room, centre + 2 * room), color=style.BLUE, linewidth=1.4)
    axes.plot(h, min(max(slope, centre - room), centre + room), "o", color=style.BLUE, markersize=9, clip_on=False)
    axes.set(xlim=(1e-17, 2), ylim=(centre - room, centre + room), xlabel="step h", ylabel="slope of the secant")
    style.title_over_legend(axes, "Its slope, for every h")
    style.decades(axes.xaxis)


def _nothing(axes, why: Alarm) -> Alarm:
    for empty in axes.values():
        empty.set_visible(False)
    return why


def _short(error: float) -> str:
    return f"{error:.1g}" if error < 1 else f"{error:.0f}"


def sentence(state: dict, tangent: float, slope: float) -> str:
    """What the two lines say about each other."""
    x, h, name = state["x"], state["h"], state["curve"]
    if not math.isfinite(tangent):
        note = "The central secant's slope is 0, but that is no derivative." if state["rule"] == "central" else ""
        return Alarm(f"{name} has a corner at 0: slope 1 to its right, −1 to its left, no derivative. {note}")
    if x + h == x:
        return Alarm(f"h = {h:.2g}: in float64, x + h is x itself. The second point is gone, and the slope with it.")
    error = abs(slope - tangent)
    both = f"the secant's slope is {signed(slope, 6)}, the tangent's {signed(tangent, 6)}"
    text = f"h = {h:.2g}: {both}; off by {_short(error)}."
    if h < 1e-8 and error > 1e-7:
        return f"{text} Rounding: the two values of f agree in all but their last digits."
    return text
