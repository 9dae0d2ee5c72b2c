"""The same small number added again and again, each sum rounded to a format: to nearest it stalls."""

from functools import lru_cache

import numpy as np
import torch
from matplotlib.axes import Axes

from hpcdl.numerics.rounding import Fixed, Format, round_nearest
from hpcdl.numerics.rounding.philox import random_bits
from hpcdl.numerics.rounding.plain import round_with
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import choice, player, stops
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.number_formats import FORMATS as ALL

FORMATS: dict[str, Format] = {  # the fixed-point ones have room for the largest sum
    "fixed point ⟨6, 4⟩": Fixed(6, 4),
    "fixed point ⟨6, 10⟩": Fixed(6, 10),
    **{name: fmt for name, fmt in ALL.items() if not isinstance(fmt, Fixed)},
}
STEPS, SUMS = 600, 12  # terms, and sums at random side by side
TERMS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04)


def explorable() -> Explorable:
    """How many terms, the size of each, and the format of the sum."""
    controls = {
        "steps": player("terms added", 500, 1, STEPS, 40),
        "term": stops("size of a term", TERMS, 0.01),
        "format": choice("format", list(FORMATS), "bfloat16"),
    }
    return Explorable(draw, controls, layout=[["sums", "gaps"]], width_ratios=[1.5, 1])


@lru_cache(maxsize=8)
def sums(fmt: Format) -> tuple[np.ndarray, np.ndarray]:
    """Sums `(STEPS + 1, terms, 1)` to nearest and `(STEPS + 1, terms, SUMS)` at random, rounded after each addition."""
    terms = torch.tensor(TERMS)[:, None]
    random = random_bits(seed=1, first=0, n=STEPS * len(TERMS) * SUMS, bits=fmt.random_bits).view(
        STEPS, len(TERMS), SUMS
    )
    nearest, stochastic = torch.zeros(STEPS + 1, len(TERMS), 1), torch.zeros(STEPS + 1, len(TERMS), SUMS)
    for step in range(STEPS):  # all sizes of a term at once: moving that slider then costs nothing
        nearest[step + 1] = round_nearest(nearest[step] + terms, fmt)
        stochastic[step + 1] = round_with(stochastic[step] + terms, random[step], fmt)
    return nearest.numpy(), stochastic.numpy()


def draw(state: dict, axes: dict[str, Axes]) -> str:
    steps, term, fmt = state["steps"], state["term"], FORMATS[state["format"]]
    nearest, stochastic = (table[: steps + 1, TERMS.index(term)] for table in sums(fmt))
    nearest = nearest[:, 0]
    _sums(axes["sums"], nearest, stochastic, term)
    _gaps(axes["gaps"], fmt.quantum(torch.from_numpy(nearest)).numpy() / 2, term)
    return sentence(nearest, stochastic[-1].mean(), term)


def _sums(axes, nearest, stochastic, term: float) -> None:
    steps = np.arange(len(nearest))
    axes.plot(steps, stochastic, color=style.SKY, linewidth=0.8, alpha=0.6)
    axes.plot(steps, term * steps, color=style.INK, linestyle=":", linewidth=1.6, label="exact")
    axes.plot(steps, stochastic.mean(1), color=style.BLUE, label=f"at random, mean of {SUMS}")
    axes.plot(steps, nearest, color=style.ORANGE, label="to nearest")
    axes.set(xlim=(0, STEPS), ylim=(0, 1.25 * STEPS * term), xlabel="terms added", ylabel="sum")
    places = [share * STEPS * term for share in (0, 0.25, 0.5, 0.75, 1)]
    style.ticks(axes.yaxis, places, [f"{place:.{1 if places[-1] > 10 else 2}f}" for place in places])
    style.title_over_legend(axes, "The stored sum")


def _gaps(axes, half, term: float) -> None:
    axes.semilogy(np.arange(len(half)), half, color=style.ORANGE, drawstyle="steps-post", label="ε(s) / 2")
    axes.axhline(term, color=style.INK, linestyle=":", linewidth=1.6, label="size of a term")
    axes.set(xlim=(0, STEPS), ylim=(1e-5, 1), xlabel="terms added", ylabel="size")
    style.decades(axes.yaxis)
    style.title_over_legend(axes, "Half a spacing there")


def sentence(nearest: np.ndarray, mean: float, term: float) -> str:
    """Where each sum stands, and since when the nearest one does not move."""
    steps = len(nearest) - 1
    told = f"{steps} terms of {term:g} make {steps * term:.4g}. At random: {mean:.4g} on average. To nearest: "
    if steps > 1 and nearest[-1] == nearest[-2]:
        since = int(np.argmax(nearest == nearest[-1]))
        return f"{told}{nearest[-1]:.4g}, stalled since term {since}." if since else f"{told}0, it never began."
    return f"{told}{nearest[-1]:.4g}."
