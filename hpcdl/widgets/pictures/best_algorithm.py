"""The map of the best all-reduce over the number of ranks and the size of the message, and one column of it."""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from hpcdl.cost import collectives
from hpcdl.widgets.kit import style, units
from hpcdl.widgets.kit.controls import MICRO, NANO, log_slider, machine_sliders, stops
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.units import number

COLORS = {
    "recursive_doubling": style.BLUE,
    "rabenseifner": style.ORANGE,
    "ring": style.GREEN,
    "tree": style.PURPLE,
    "hierarchical": style.SKY,
    "parameter_server": style.VERMILLION,
    "naive": style.GREY,
}
NAMES = tuple(COLORS)
RANKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
LOW, HIGH = 2.0, 9.0  # powers of ten of the sizes
SIZES = np.logspace(LOW, HIGH, 106)
UNITS = {2: "100 B", 3: "1 KB", 4: "10 KB", 5: "100 KB", 6: "1 MB", 7: "10 MB", 8: "100 MB", 9: "1 GB"}
BIG = float(1 << 40)  # bytes enough for a slope that no latency hides


def library_cost(algorithm: str, p: int, nbytes: float, alpha: float, beta: float) -> float:
    """The formulas of `hpcdl.cost.collectives`, without the rounding to whole elements."""
    return collectives.ALL_REDUCE[algorithm](p, int(nbytes), alpha, beta, itemsize=1)


def explorable(cost: Callable = library_cost, alpha: float = 1e-5, beta: float = 1e-10) -> Explorable:
    """Sliders for one place of the map and for the machine; `cost(algorithm, p, nbytes, alpha, beta)` in seconds."""
    controls = {
        "p": stops("ranks p", RANKS, 12),
        "nbytes": log_slider("bytes n", 1e6, 10**LOW, 10**HIGH, ".3s"),
        **machine_sliders(alpha, beta),
    }
    draw_here = partial(draw, lines=CostLines(cost))
    return Explorable(draw_here, controls, (9.6, 4.6), layout=[["map", "costs"]], width_ratios=[1.15, 1])


class CostLines:
    """Every cost is a straight line in nbytes: alphas · alpha + volume · nbytes · beta. Asked of `cost` once each."""

    def __init__(self, cost: Callable):
        @cache
        def line(name: str, p: int) -> tuple[float, float]:
            return cost(name, p, 0, 1.0, 0.0), cost(name, p, BIG, 0.0, 1.0) / BIG

        self.line = line

    def seconds(self, p: int, nbytes: np.ndarray, alpha: float, beta: float) -> np.ndarray:
        """Seconds by algorithm, in the order of NAMES, and size."""
        terms = np.array([self.line(name, p) for name in NAMES])
        return terms[:, :1] * alpha + terms[:, 1:] * beta * np.atleast_1d(nbytes)


def draw(state: dict, axes: dict[str, Axes], lines: CostLines) -> str:
    p, nbytes, alpha, beta = state["p"], state["nbytes"], MICRO * state["alpha"], NANO * state["beta"]
    winners = np.array([lines.seconds(ranks, SIZES, alpha, beta).argmin(0) for ranks in RANKS])
    _map(axes["map"], winners, p, nbytes)
    _costs(axes["costs"], lines.seconds(p, SIZES, alpha, beta), p, nbytes)
    return verdict(lines.seconds(p, nbytes, alpha, beta)[:, 0], p)


def verdict(seconds: np.ndarray, p: int) -> str:
    """Best, next and naive, in a sentence."""
    first, second = np.argsort(seconds, kind="stable")[:2]
    naive = seconds[NAMES.index("naive")]
    return (
        f"{p} ranks: {_words(NAMES[first])} takes {units.seconds(seconds[first])}, {_words(NAMES[second])} "
        f"{number(seconds[second] / seconds[first])} times as long, naive {number(naive / seconds[first])} times."
    )


def _map(axes, winners: np.ndarray, p: int, nbytes: float) -> None:
    colors = ListedColormap(list(COLORS.values()))
    extent = (LOW, HIGH, -0.5, len(RANKS) - 0.5)
    axes.imshow(
        winners, cmap=colors, vmin=0, vmax=len(NAMES) - 1, extent=extent, origin="lower", aspect="auto", alpha=0.8
    )
    for i in np.unique(winners):
        rows, columns = np.nonzero(winners == i)
        if len(rows) > 60:  # room for a name
            counts = np.bincount(rows)
            wide = np.nonzero(counts >= counts.max() / 2)[0]
            row = wide[len(wide) // 2]
            middle = LOW + (HIGH - LOW) * np.median(columns[rows == row]) / (len(SIZES) - 1)
            middle = min(max(middle, LOW + 1), HIGH - 1)  # the whole name inside
            box = {"facecolor": style.CARD, "alpha": 0.75, "edgecolor": "none", "boxstyle": "round,pad=0.2"}
            axes.text(middle, row, _words(NAMES[i]), ha="center", va="center", fontsize=11, bbox=box)
    mark = {"color": style.INK, "markeredgecolor": style.CARD, "markersize": 13, "zorder": 4}  # above the names
    axes.plot(np.log10(nbytes), RANKS.index(p), "X", clip_on=False, **mark)
    axes.axhline(RANKS.index(p), color=style.INK, linewidth=0.8, linestyle=":")
    axes.set(xlim=(LOW, HIGH), ylim=(-0.5, len(RANKS) - 0.5), xlabel="size of x", ylabel="ranks p")
    style.ticks(axes.xaxis, list(UNITS), [UNITS[k] if k % 2 == 0 else "" for k in UNITS])
    style.ticks(axes.yaxis, range(0, len(RANKS), 2), [str(ranks) for ranks in RANKS[::2]])
    axes.grid(False)
    axes.set_title("The best all-reduce")


def _costs(axes, seconds: np.ndarray, p: int, nbytes: float) -> None:
    best = seconds.argmin(0)
    for i, name in enumerate(NAMES):
        axes.plot(SIZES, seconds[i], color=COLORS[name], linewidth=1.4, alpha=0.9, label=_words(name))
    for i in np.unique(best):
        axes.plot(SIZES[best == i], seconds[i, best == i], color=COLORS[NAMES[i]], linewidth=5, alpha=0.6)
    for change in np.nonzero(np.diff(best))[0]:
        axes.plot(SIZES[change], seconds[:, change].min(), "o", color=style.INK, markersize=7)
    axes.axvline(nbytes, color=style.INK, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlim=(10**LOW, 10**HIGH), xlabel="size of x", ylabel="seconds")
    axes.set(ylim=(10 ** np.floor(np.log10(seconds.min())), 10 ** np.ceil(np.log10(seconds.max()))))
    style.ticks(axes.xaxis, [10.0**k for k in (2, 4, 6, 8)], [UNITS[k] for k in (2, 4, 6, 8)])
    style.decades(axes.yaxis)
    axes.set_title(f"What each costs for p = {p}")
    card = {"frameon": True, "facecolor": style.CARD, "edgecolor": "none", "framealpha": 0.9}  # on the upright line
    axes.legend(loc="upper left", fontsize=9.5, labelspacing=0.2, handlelength=1.2, **card)


def _words(name: str) -> str:
    return {"rabenseifner": "Rabenseifner"}.get(name, name.replace("_", " "))
