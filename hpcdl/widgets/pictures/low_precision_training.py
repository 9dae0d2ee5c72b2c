"""Training curves of LeNet in fixed point: word length, fractional length and mode over runs made before, and now."""

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
import traitlets
from matplotlib.axes import Axes

from hpcdl.nn.low_precision import MODES, Epoch
from hpcdl.training import low_precision_runs as runs
from hpcdl.widgets.kit import style, units
from hpcdl.widgets.kit.controls import choice, slider, stops
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import Alarm

LOOKS = {"nearest": (style.ORANGE, "s"), "stochastic": (style.BLUE, "o")}
LEAST, MOST = 3, 14  # fractional lengths
SHARES = [0, 0.2, 0.4, 0.6, 0.8, 1]  # of the digits
NEW_SEED = 100  # runs made now begin at another one than those made before


class RunButton(widgets.Button):
    """Trains when it is pressed; `value` holds its runs so far, by setting: lists of `Epoch`s that grow."""

    value = traitlets.Dict()

    def __init__(self, setting: Callable[[], tuple[int, int, str]]):
        super().__init__(description="Train now, a few seconds", layout={"width": "max-content"})
        self.on_click(lambda _: self.run(*setting()))

    def run(self, wl: int, fl: int, mode: str) -> None:
        """Make one run; `value` changes after every epoch."""
        name = runs.name_of(wl, fl, mode)
        epochs: list[Epoch] = []
        before = self.value.get(name, [])
        self.disabled = True
        try:
            for epoch in runs.make(wl, fl, mode, NEW_SEED + len(before)):
                epochs = [*epochs, epoch]
                self.value = {**self.value, name: [*before, epochs]}
        finally:
            self.disabled = False


def explorable() -> Explorable:
    """Word and fractional length and mode; the button adds a run of one's own."""
    controls = {
        "wl": stops("word length WL", tuple(runs.LENGTHS), 16),
        "fl": slider("fractional length FL", 8, LEAST, MOST),
        "mode": choice("mode", ["both", *MODES], "both"),
    }
    button = RunButton(lambda: chosen(**{name: control.value for name, control in controls.items()}))
    return Explorable(draw, {**controls, "live": button}, layout=[["epochs", "lengths"]])


def chosen(wl: int, fl: int, mode: str) -> tuple[int, int, str]:
    """The setting that the button trains: of both modes the stochastic one; FL as far as there is one for the word."""
    return wl, nearest_length(wl, fl), "stochastic" if mode == "both" else mode


def nearest_length(wl: int, fl: int) -> int:
    """The fractional length next to `fl` that a word of `wl` bits was trained with."""
    return min(max(fl, runs.LENGTHS[wl][0]), runs.LENGTHS[wl][-1])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    wl, fl = state["wl"], state["fl"]
    modes = MODES if state["mode"] == "both" else (state["mode"],)
    if fl not in runs.LENGTHS[wl]:
        for part in axes.values():
            part.set_visible(False)
        ends = runs.LENGTHS[wl]
        return Alarm(f"Words of {wl} bits were trained with FL from {ends[0]} to {ends[-1]}. Move FL there.")
    _epochs(axes["epochs"], wl, fl, modes, state["live"])
    _lengths(axes["lengths"], wl, fl, modes, state["live"])
    return sentence(wl, fl, modes)


def before(wl: int, fl: int, mode: str) -> list:
    return runs.made_before()[runs.name_of(wl, fl, mode)]


def final(wl: int, fl: int, mode: str) -> float:
    """Held-out accuracy after the last epoch, the mean over seeds."""
    found = before(wl, fl, mode)
    return sum(run[-1].accuracy for run in found) / len(found)


def _epochs(axes, wl: int, fl: int, modes, live: dict) -> None:
    for run in before(32, 0, runs.FLOAT32):
        _curve(axes, run, color=style.INK, linestyle=":")
    for mode in modes:
        colour, marker = LOOKS[mode]
        for run in before(wl, fl, mode):
            _curve(axes, run, color=colour, marker=marker, markersize=5)
        for run in live.get(runs.name_of(wl, fl, mode), []):
            _curve(axes, run, color=style.GREEN, marker=marker, markersize=5)
    axes.set(xlim=(0.7, runs.EPOCHS + 0.3), ylim=(0, 1.03), xlabel="epoch", ylabel="held-out digits read")
    _ticks(axes, range(2, runs.EPOCHS + 1, 2))
    style.title_over_legend(axes, f"LeNet with all tensors in ⟨{wl - fl}, {fl}⟩")


def _curve(axes, run, **look) -> None:
    axes.plot([epoch.number for epoch in run], [epoch.accuracy for epoch in run], **look)


def _lengths(axes, wl: int, fl: int, modes, live: dict) -> None:
    axes.axhline(final(32, 0, runs.FLOAT32), color=style.INK, linestyle=":", linewidth=1.6, label="float32")
    for mode in modes:
        colour, marker = LOOKS[mode]
        lengths = runs.LENGTHS[wl]
        axes.plot(lengths, [final(wl, n, mode) for n in lengths], color=colour, marker=marker, label=mode)
    now = [(run, LOOKS[mode][1]) for mode in modes for run in live.get(runs.name_of(wl, fl, mode), [])]
    for k, (run, marker) in enumerate(now):
        axes.plot(fl, run[-1].accuracy, marker, color=style.GREEN, markersize=8, label="" if k else "just now")
    axes.axvline(fl, color=style.INK, linewidth=0.8, linestyle=":")
    axes.set(xlim=(LEAST - 0.5, MOST + 0.5), ylim=(0, 1.03), ylabel=f"after {runs.EPOCHS} epochs")
    axes.set_xlabel("fractional length FL: finer, and a smaller range →")
    _ticks(axes, range(4, MOST + 1, 2))
    style.title_over_legend(axes, f"Every split of {wl} bits")


def _ticks(axes, places: range) -> None:
    style.ticks(axes.xaxis, places, [str(place) for place in places])
    style.ticks(axes.yaxis, SHARES, [f"{share:.1f}" for share in SHARES])


def sentence(wl: int, fl: int, modes: Any) -> str:
    """Where each mode ends, and what the format can hold."""
    ends = " and ".join(f"{100 * final(wl, fl, mode):.0f} % ({mode})" for mode in modes)
    return (
        f"{wl} bits, ε = 2{units.raised(-fl)} = {2.0**-fl:.2g}, numbers to ±{2.0 ** (wl - fl - 1):g}: {ends} of the "
        f"held-out digits; float32 {100 * final(32, 0, runs.FLOAT32):.0f} %."
    )
