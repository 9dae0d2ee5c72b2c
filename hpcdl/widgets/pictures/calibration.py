"""How well a student guesses, over all labs: each guess in factors of the truth, and the share within a factor."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from hpcdl import labs
from hpcdl.guesses import Guess, Ledger, errors, file_in, summary, within
from hpcdl.widgets.kit import palette, style
from hpcdl.widgets.kit.controls import choice
from hpcdl.widgets.kit.explorable import Explorable

COURSE = [path.stem.partition("_")[2] for path in labs.notebooks(labs.shipped())]
ORDERS = {"as you made them": lambda guess: 0, "lab by lab": lambda guess: [*COURSE, guess.lab].index(guess.lab)}
MOST = 2.0  # a factor of 100: what is further off stands at the edge
FACTORS = (1, 2, 3, 10, 30, 100)


def explorable(guesses: Callable[[], Iterable[Guess]] | None = None) -> Explorable:
    """The order in which the guesses stand. `guesses()` gives them; by default those of the labs in this folder."""
    known = guesses or Ledger(file_in(Path.cwd())).guesses.values
    controls = {"order": choice("guesses", list(ORDERS), "as you made them")}
    draw_here = partial(draw, guesses=known)
    return Explorable(draw_here, controls, (9.6, 4.2), layout=[["each", "share"]], width_ratios=[1.5, 1])


def draw(state: Mapping, axes: Mapping[str, Axes], guesses: Callable[[], Iterable[Guess]]) -> str:
    found = [guess for guess in guesses() if guess.guess is not None]
    numbers = sorted((guess for guess in found if guess.error is not None), key=ORDERS[state["order"]])
    _draw_each(axes["each"], numbers)
    _draw_share(axes["share"], errors(numbers))
    return summary(found)


def _draw_each(axes: Axes, numbers: list[Guess]) -> None:
    found = np.clip(errors(numbers), -MOST, MOST)
    for factor, strength in ((10, 0.12), (2, 0.3)):
        axes.axhspan(-np.log10(factor), np.log10(factor), color=palette.tint(style.GREEN, strength), zorder=0)
    axes.axhline(0, color=style.GREY, linewidth=1)
    slugs = list(dict.fromkeys(guess.lab for guess in numbers))
    for place, slug in enumerate(slugs):
        at = [i for i, guess in enumerate(numbers, start=1) if guess.lab == slug]
        again, color = divmod(place, len(style.CYCLE))
        looks: Any = {"color": style.CYCLE[color], "markersize": 7, "label": slug.replace("_", " ")}
        axes.plot(at, found[np.array(at) - 1], "os^"[again % 3], **looks)
    room = 0.3 * -(-len(slugs) // 3)  # for the legend
    axes.set(xlim=(0.3, max(len(numbers), 9) + 0.7), ylim=(-MOST - 0.15 - room, MOST + 0.15), xlabel="guess")
    axes.set_title("Guess ÷ truth")
    labels = {0: "right", np.log10(2): "× 2", 1: "× 10", 2: "× 100", -np.log10(2): "÷ 2", -1: "÷ 10", -2: "÷ 100"}
    style.ticks(axes.yaxis, list(labels), list(labels.values()))
    steps = range(1, max(len(numbers), 9) + 1, max(1, len(numbers) // 8))
    style.ticks(axes.xaxis, steps, [str(step) for step in steps])
    if slugs:
        axes.legend(loc="lower left", ncols=3, fontsize=9, columnspacing=1, handletextpad=0.2)


def _draw_share(axes: Axes, found: list[float]) -> None:
    factors = np.geomspace(1, 10**MOST, 200)
    if found:
        shares = [100 * within(factor, found) / len(found) for factor in factors]
        axes.plot(np.log10(factors), shares, color=style.BLUE)
        for factor in (2, 10):
            share = 100 * within(factor, found) / len(found)
            axes.plot(np.log10(factor), share, "o", color=style.VERMILLION, markersize=7)
            place = np.log10(factor) - 0.04, share + 2  # the curve never falls: left of a dot it is below
            axes.text(*place, f"{share:.0f} %", fontsize=11, ha="right", va="bottom")
    axes.set(xlim=(0, MOST), ylim=(0, 112), xlabel="within a factor of", ylabel="share of your guesses, %")
    axes.set_title("How often how near")
    style.ticks(axes.xaxis, np.log10(FACTORS).tolist(), [str(factor) for factor in FACTORS])
