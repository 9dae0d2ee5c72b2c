"""Measured times of messages and collectives, and what alpha and beta predict for them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style, units
from hpcdl.widgets.kit.controls import MEASURED, MICRO, MODEL, NANO, choice, machine_sliders, model_or_measured, shows
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import Alarm
from hpcdl.widgets.kit.units import number

ALL = "all of them"
MARKERS = "os^Dvp*hX"
WITHIN = 1.5  # a factor between measured and predicted that counts as agreement


def message(name: str, nbytes: float, alpha: float, beta: float) -> float:
    """What one message costs."""
    return alpha + nbytes * beta


def explorable(measured: dict, predict: Callable = message, alpha: float = 1e-4, beta: float = 1e-9) -> Explorable:
    """Sliders for alpha and beta over measurements `{name: (nbytes, seconds)}`.

    `predict(name, nbytes, alpha, beta)` gives seconds; by default each measurement is of one message.
    """
    controls = machine_sliders(alpha, beta)
    if len(measured) > 1:
        controls["shown"] = choice("series", [ALL, *measured], ALL)
    controls["kind"] = model_or_measured()
    draw_here = partial(_draw_these, measured=measured, predict=predict)
    return Explorable(draw_here, controls, (9.6, 4.4), layout=[["times", "ratio"]], width_ratios=[1.35, 1])


def _draw_these(state, axes, measured, predict) -> str:
    machine = {"alpha": MICRO * state["alpha"], "beta": NANO * state["beta"]}
    return draw({"shown": ALL, **state, **machine, "measured": measured, "predict": predict}, axes)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    """`state`: measured, predict, alpha, beta, and which series is shown; alpha None draws the measurements alone."""
    shown = {name: _columns(series) for name, series in state["measured"].items() if state["shown"] in (ALL, name)}
    shown = {name: series for name, series in shown.items() if len(series[0])}
    looks = {name: _look(i) for i, name in enumerate(state["measured"])}
    _frame(axes)
    if not shown:
        return "Nothing is measured yet."
    ratios = []
    for name, (nbytes, seconds) in shown.items():
        color, marker = looks[name]
        sizes, least = fastest(nbytes, seconds)
        label = {"label": name.replace("_", " ")}
        if shows(state, MEASURED):
            axes["times"].plot(nbytes, seconds, ".", color=color, markersize=4, alpha=0.3)
            axes["times"].plot(sizes, least, marker, color=color, markersize=6, alpha=0.8, **label)
            label = {}
        if state["alpha"] is not None:
            model = [state["predict"](name, float(size), state["alpha"], state["beta"]) for size in sizes]
            if shows(state, MODEL):
                axes["times"].plot(sizes, model, "-", color=color, linewidth=1.8, **label)
            axes["ratio"].plot(sizes, least / model, marker, color=color, markersize=6, alpha=0.8)
            ratios.append(least / model)
    axes["times"].legend(loc="upper left", labelspacing=0.25, handletextpad=0.2, columnspacing=1, ncols=2)
    return verdict(state["alpha"], state["beta"], ratios)


def fastest(nbytes: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each size and its least time: a busy machine makes a message slower, never faster."""
    sizes, which = np.unique(nbytes, return_inverse=True)
    least = np.full(len(sizes), np.inf)
    np.minimum.at(least, which, seconds)
    return sizes, least


def verdict(alpha: float, beta: float, ratios: Any) -> str:
    """How well alpha and beta explain the measurements, in a sentence."""
    if not ratios:
        return "Measuring."
    ratios = np.concatenate(ratios)
    share = np.mean((ratios > 1 / WITHIN) & (ratios < WITHIN))
    typical = math.exp(np.median(np.abs(np.log(ratios))))
    machine = f"α = {number(alpha / MICRO)} µs, β = {number(beta / NANO)} ns per byte ({units.nbytes(1 / beta, '/s')})"
    said = f"{machine}: {100 * share:.0f} % of the marks are within a factor {WITHIN:g} of the prediction"
    if share < 0.5:
        side = "slower" if np.median(ratios) > 1 else "faster"
        return Alarm(f"{said}. The machine is {side} than that, typically by a factor {number(typical)}.")
    return f"{said}. A message of {units.nbytes(alpha / beta)} = α/β pays as much for latency as for bytes."


def _columns(series) -> tuple[np.ndarray, np.ndarray]:
    nbytes, seconds = (np.asarray(column, dtype=float) for column in series)
    return nbytes, seconds


def _look(i: int) -> tuple[str, str]:
    return style.CYCLE[i % len(style.CYCLE)], MARKERS[i % len(MARKERS)]


def _frame(axes) -> None:
    for one in axes.values():
        one.set(xscale="log", yscale="log", xlim=(2, 2e8), xlabel="bytes")
        style.decades(one.xaxis)
    axes["times"].set(ylim=(3e-7, 30), ylabel="seconds")
    axes["times"].set_title("Measured (marks: fastest), predicted (lines)")
    style.decades(axes["times"].yaxis)
    axes["ratio"].axhspan(1 / WITHIN, WITHIN, color=style.GREEN, alpha=0.12)
    axes["ratio"].axhline(1, color=style.GREEN, linewidth=1.5)
    axes["ratio"].set(ylim=(1 / 30, 30), ylabel="measured / predicted")
    style.ticks(axes["ratio"].yaxis, [0.1, 1, 10], ["0.1", "1", "10"])
    axes["ratio"].set_title("How far off the fastest are")
