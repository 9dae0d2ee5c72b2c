"""One x rounded again and again: the mean of all results so far, to nearest and at random."""

import math

import torch
from matplotlib.axes import Axes

from hpcdl.numerics.rounding import neighbours, round_nearest, stochastic_round
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import choice, player, slider
from hpcdl.widgets.kit.curves import signed
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.number_formats import FORMATS, spacing

MOST = 400  # roundings
SURE = 1.96  # standard deviations: 95 of 100 normal draws are no farther off


def explorable() -> Explorable:
    """How often it is rounded, x, the format and another draw."""
    controls = {
        "n": player("roundings n", 100, 1, MOST, 60),
        "x": slider("x", 1.30, -2.0, 2.0, 0.005, ".3f"),
        "format": choice("format", list(FORMATS), "FP8 E4M3"),
        "seed": slider("random numbers", 0, 0, 20),
    }
    return Explorable(draw, controls, layout=[["mean", "counts"]], width_ratios=[2.4, 1])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    n, fmt, x = state["n"], FORMATS[state["format"]], torch.tensor(state["x"])
    lower, upper = (float(t) for t in neighbours(x, fmt))
    nearest, exact = float(round_nearest(x, fmt)), float(x)
    results = stochastic_round(x.expand(MOST).contiguous(), fmt, seed=state["seed"])[:n].double()
    _means(axes["mean"], results, exact, nearest, lower, upper, spacing(exact, fmt))
    ups = int((results == upper).sum()) if upper > lower else 0
    _counts(axes["counts"], {lower: n - ups, upper: ups} if upper > lower else {lower: n}, n)
    return sentence(exact, nearest, float(results.mean()), n, lower == upper)


def _means(axes, results, x: float, nearest: float, lower: float, upper: float, eps: float) -> None:
    n = torch.arange(1, MOST + 1)
    spread = SURE * math.sqrt(max((x - lower) * (upper - x), 0.0)) / n.sqrt()
    ends = (x - spread).clamp(min=lower), (x + spread).clamp(max=upper)
    axes.fill_between(n, *ends, color=style.PURPLE, alpha=0.25, linewidth=0, label="95 of 100 such means")
    axes.axhline(x, color=style.INK, linewidth=1.4, linestyle=":", label="x")
    axes.axhline(nearest, color=style.GREEN, label="to nearest")
    means = results.cumsum(0) / n[: len(results)]
    axes.plot(n[: len(results)], means, color=style.PURPLE, label="mean at random")
    axes.plot(len(results), means[-1], "o", color=style.PURPLE, markersize=8)
    axes.set(xlim=(0, MOST), ylim=(lower - 0.15 * eps, upper + 0.45 * eps), xlabel="roundings", ylabel="mean so far")
    style.ticks(axes.yaxis, *zip(*{upper: "⌊x⌋ + ε", lower: "⌊x⌋"}.items(), strict=True))
    axes.set_title("The mean of all roundings")
    axes.legend(loc="upper right", ncols=2, labelspacing=0.3)


def _counts(axes, counts: dict[float, int], n: int) -> None:
    for place, (count, colour) in enumerate(zip(counts.values(), (style.BLUE, style.ORANGE), strict=False)):
        axes.bar(place, count / n, width=0.6, color=colour)
        axes.text(place, count / n + 0.03, f"{100 * count / n:.0f} %", ha="center", color=style.INK)
    axes.set(xlim=(-0.6, 1.6), ylim=(0, 1.15), ylabel="share of the roundings", xlabel="result at random")
    style.ticks(axes.xaxis, range(len(counts)), [signed(value, 6) for value in counts])
    style.ticks(axes.yaxis, [0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.set_title("What came out")


def sentence(x: float, nearest: float, mean: float, n: int, exact: bool) -> str:
    """Which of the two means is nearer to x now."""
    if exact:
        return f"{signed(x)} is a number of the format: every rounding gives x itself, and nothing is random."
    off, same = abs(mean - x), abs(nearest - x)
    better = "at random is better by now" if off < same else "to nearest is still better"
    return (
        f"After {n} rounding{'s' * (n > 1)} of {signed(x, 4)} the random mean is off by {off:.2g}, "
        f"to nearest by {same:.2g}, as it was from the first one: {better}."
    )
