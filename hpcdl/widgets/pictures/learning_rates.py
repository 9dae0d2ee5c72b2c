"""Learning rates side by side: their loss curves, and where they stand after the same number of steps."""

import math
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import player, slider
from hpcdl.widgets.kit.explorable import Explorable

SHARES = (0.02, 0.1, 0.3, 0.6, 0.9, 1.02)  # of the largest stable learning rate: one curve each
SWEEP = torch.linspace(0.005, 1.15, 230, dtype=torch.float64)
FLOOR, CEILING = 1e-8, 1e4


def explorable() -> Explorable:
    """Number of steps, shape of the valley and momentum; the learning rates are shares of the largest stable one."""
    controls = {
        "steps": player("steps", 40, 1, 100),
        "condition": slider("valley, length : width", 5, 1, 30),
        "beta": slider("momentum β", 0.0, 0.0, 0.95, 0.05),
    }
    return Explorable(draw, controls, layout=[["curves", "sweep"]])


def losses(shares: torch.Tensor, steps: int, condition: float, beta: float) -> torch.Tensor:
    """The loss `(steps + 1, len(shares))` of descent in a valley with curvatures 1 and 1 / condition^2.

    The contours of such a valley are ellipses `condition` times as long as wide; lambda_max is 1. The start is as
    high up along the valley as across it: loss 1/2 from each.
    """
    curvature = torch.tensor([[1.0], [1 / condition**2]], dtype=torch.float64)
    lr = shares * 2 * (1 + beta)
    w = torch.tensor([[1.0], [condition]], dtype=torch.float64).expand(2, len(shares))
    v = torch.zeros_like(w)
    trace = [w]
    for _ in range(steps):
        v = beta * v + curvature * w
        w = w - lr * v
        trace.append(w)
    return 0.5 * (curvature * torch.stack(trace) ** 2).sum(dim=1)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    steps, condition, beta = state["steps"], state["condition"], state["beta"]
    if steps < 1 or condition < 1:
        raise ValueError(f"steps = {steps} and length : width = {condition} must both be at least 1")
    rule = "2(1+β)/λmax" if beta else "2/λmax"
    _curves(axes["curves"], losses(torch.tensor(SHARES, dtype=torch.float64), steps, condition, beta))
    final = losses(SWEEP, steps, condition, beta)[-1]
    _sweep(axes["sweep"], final, rule)
    return verdict(steps, beta, rule, final)


def verdict(steps: Any, beta: float, rule: str, final: Any) -> str:
    """How far the best learning rate got, in a sentence; the loss began at 1."""
    best, after = int(final.argmin()), f"After {steps} step{'s' * (steps != 1)}"
    if beta:
        return f"With momentum the losses swing, and the limit is {1 + beta:.2f} times as high: {rule}."
    if final[best] > 0.1:
        return (
            f"{after} even the best learning rate, {100 * SWEEP[best]:.0f} % of the limit, "
            f"leaves {100 * final[best]:.0f} % of the loss."
        )
    return (
        f"{after} the best learning rate is {100 * SWEEP[best]:.0f} % of the limit {rule}. "
        "Too low is slow; just above the limit the loss turns upward."
    )


def _curves(axes, curves) -> None:
    ends = [float(curve[-1].log10()) for curve in curves.clamp(FLOOR, CEILING).T]
    for share, curve, end, place in zip(SHARES, curves.clamp(FLOOR, CEILING).T, ends, spread(ends), strict=True):
        color, last = style.VERMILLION if share > 1 else style.shade(share), len(curve) - 1
        axes.semilogy(curve, color=color)
        axes.plot([last, last + 4], [10**end, 10**place], color=color, linewidth=1)
        axes.text(last + 5, 10**place, f"{100 * share:.0f} %", va="center", fontsize=11)
    axes.set(xlim=(0, 124), ylim=(FLOOR, CEILING), xlabel="step", ylabel="loss above its minimum")
    axes.xaxis.set_major_locator(MultipleLocator(20))
    axes.set_title("Six learning rates, in % of the limit")
    style.decades(axes.yaxis)


def spread(ends: list[float], apart: float = 0.85) -> list[float]:
    """Decades for labels beside curves that end at `ends`: near them, in their order, and `apart` from each other."""
    order = sorted(range(len(ends)), key=ends.__getitem__)
    places = sorted(ends)
    for i in range(1, len(places)):  # up from below ...
        places[i] = max(places[i], places[i - 1] + apart)
    middle = (sum(places) - sum(ends)) / len(ends)  # ... and down again by what they rose on the average
    top, bottom = math.log10(CEILING) - 0.45, math.log10(FLOOR) + 0.45
    lowest = [bottom + apart * i for i in range(len(places))]
    highest = [top - apart * i for i in range(len(places))][::-1]
    places = [min(max(place - middle, low), high) for place, low, high in zip(places, lowest, highest, strict=True)]
    return [place for _, place in sorted(zip(order, places, strict=True))]


def _sweep(axes, final, rule) -> None:
    stable = SWEEP <= 1
    axes.semilogy(100 * SWEEP[stable], final[stable].clamp(FLOOR, CEILING), color=style.BLUE)
    axes.semilogy(100 * SWEEP[~stable], final[~stable].clamp(FLOOR, CEILING), color=style.VERMILLION)
    axes.axvline(100, color=style.INK, linewidth=1, linestyle="--")
    axes.annotate(f"{rule} ", (100, CEILING / 4), ha="right", va="top")
    axes.set(xlim=(0, 115), ylim=(FLOOR, CEILING), xlabel="learning rate, % of the limit")
    axes.set_ylabel("loss above its minimum")
    axes.set_title("Any learning rate, at the last step")
    style.decades(axes.yaxis)
