"""The error of a difference quotient against its step, in float32 and float64: truncation meets rounding in a V."""

import math
from collections.abc import Callable

import torch
from matplotlib.axes import Axes

from hpcdl.numerics.derivatives import RULES
from hpcdl.numerics.dual import derivatives
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import choice, log_slider, slider
from hpcdl.widgets.kit.curves import CURVES, point, signed
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import Alarm

STEPS = torch.logspace(-16, 0, 193, dtype=torch.float64)  # twelve steps to a decade
COLORS = {torch.float32: style.ORANGE, torch.float64: style.BLUE}
BESIDE = {torch.float32: (3e-12, 6), torch.float64: (2.5e-16, 2e-5)}  # h and factor above the error, for the name
FLOOR, CEILING = 1e-14, 1e2  # of the errors shown


def explorable() -> Explorable:
    """Function, point, kind of quotient, and the step at which both formats are read off."""
    smooth = [name for name in CURVES if name != "|x|"]
    controls = {
        "curve": choice("f(x) =", smooth, "sin x"),
        "rule": choice("quotient", {"forward": "forward", "central": "central"}, "forward"),
        "x": slider("x", 1.0, -2.0, 2.0, 0.05),
        "h": log_slider("h", 1e-4, 1e-16, 1.0),
    }
    return Explorable(draw, controls, figsize=(9.6, 4.6))


def error(f: Callable, rule: str, x: float, h: float | torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """|quotient - f'(x)| in float64, the quotient computed in `dtype`; x is rounded to `dtype` first."""
    at = point(x, dtype)
    truth = derivatives(f, at.double())[1]
    return (RULES[rule].quotient(f, at, torch.as_tensor(h).to(dtype)).double() - truth).abs()


def draw(state: dict, axes: Axes) -> str:
    f, rule, x, h = CURVES[state["curve"]], state["rule"], state["x"], state["h"]
    if not f(point(x)).isfinite():
        axes.set_visible(False)
        return Alarm(f"{state['curve']} has no value at x = {signed(x)}: move x.")
    _model(axes, f, rule, x)
    for dtype, color in COLORS.items():
        errors = error(f, rule, x, STEPS, dtype)
        axes.plot(STEPS, errors.masked_fill(errors == 0, math.nan), color=color, linewidth=1.8)
        at, above = BESIDE[dtype]
        height = above * float(error(f, rule, x, STEPS[at <= STEPS][:12], dtype).max())
        _label(axes, at, height, str(dtype)[6:], color=color, weight="bold")
        if h > 0:
            axes.plot(h, error(f, rule, x, h, dtype).clamp(FLOOR, CEILING), "o", color=color, markersize=9, zorder=5)
    axes.axvline(max(h, 1e-16), color=style.FAINT, linewidth=1.4, zorder=0)
    axes.set(xscale="log", yscale="log", xlim=(1e-16, 1), ylim=(FLOOR, CEILING))
    axes.set(xlabel="step h", ylabel="error of the slope")
    axes.set_title("Measured error; dashed: the worst that rounding does, and truncation")
    style.decades(axes.xaxis)
    style.decades(axes.yaxis)
    return sentence(state, f)


def _model(axes, f, rule: str, x: float) -> None:
    """Truncation and rounding as formulas, and a star where their sum is least."""
    truncation = RULES[rule].truncation(f, x, STEPS)
    dashed = {"color": style.GREY, "linestyle": (0, (4, 3)), "linewidth": 1.2}
    axes.plot(STEPS, truncation, **dashed)
    power = "h²" if RULES[rule].order == 2 else "h"
    if len(seen := STEPS[truncation > 10 * FLOOR]):  # the label is next to the line's lower end
        low = float(seen[0])
        place, side = (low / 2, "right") if low > 1e-12 else (3 * low, "left")
        _label(axes, place, 10 * FLOOR, f"truncation ∝ {power}", ha=side)
    for dtype, color in COLORS.items():
        rounding = RULES[rule].rounding(f, x, STEPS, dtype)
        axes.plot(STEPS, rounding, **dashed)
        h = 1e-11 if dtype == torch.float64 else 1e-6
        _label(axes, h, 30 * RULES[rule].rounding(f, x, h, dtype), f"rounding ∝ 1/h, {str(dtype)[6:]}")
        best = RULES[rule].best_step(f, x, dtype)
        if 0 < best < math.inf:
            least = RULES[rule].truncation(f, x, best) + RULES[rule].rounding(f, x, best, dtype)
            axes.plot(best, least, "*", color=color, markersize=17, markeredgecolor=style.INK, zorder=6)


def _label(axes, h: float, height, text: str, **looks) -> None:
    looks = {"color": style.GREY, "fontsize": 11, "va": "center", **looks}
    if FLOOR < height < CEILING:
        axes.text(h, float(height), text, **looks)


def sentence(state: dict, f: Callable) -> str:
    """The two errors at h, and the best steps."""
    rule, x, h = state["rule"], state["x"], state["h"]
    if h == 0:
        return Alarm("h = 0: both points are one, and 0/0 is no slope.")
    wrong = {dtype: float(error(f, rule, x, h, dtype)) for dtype in COLORS}
    text = f"h = {h:.1g}: off by {wrong[torch.float32]:.1g} in float32, {wrong[torch.float64]:.1g} in float64."
    best = {dtype: RULES[rule].best_step(f, x, dtype) for dtype in COLORS}
    if not all(0 < step < math.inf for step in best.values()):
        return f"{text} Here one of the two errors vanishes: no V, and no best step between them."
    return f"{text} Best (stars): h near {best[torch.float32]:.1g} and {best[torch.float64]:.1g}."
