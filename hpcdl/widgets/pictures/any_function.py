"""One hidden layer draws any curve: its neurons' steps, or ramps, are added up, and more of them follow it closer.

fhat(x) = f(x_0) + sum_i v_i step(x - x_i),   v_i = f(x_{i+1}) - f(x_i)                    a jump at each x_i
fhat(x) = f(x_0) + sum_i v_i ramp(x - x_i),   v_i = what the slope changes by at x_i       a line between two of them

Source: Cybenko 1989, "Approximation by superpositions of a sigmoidal function"; Hornik, Stinchcombe and White 1989.
"""

import math
from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from torch import Tensor

from hpcdl.widgets.kit.controls import choice, slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import BLUE, GREY, INK, ORANGE, decades

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "a wave": lambda x: torch.sin(2 * math.pi * x),
    "a bell": lambda x: torch.exp(-40 * (x - 0.5) ** 2),
    "a corner": lambda x: (x - 0.4).abs(),
    "a jump": lambda x: torch.where(x < 1 / 3, -0.5, 0.5).to(x),
    "a chirp": lambda x: torch.sin(18 * x**2),
}
NEURONS = {"step, as in this lab": "step", "ramp, max(0, z)": "ramp"}
MOST = 64
GRID = torch.linspace(0, 1, 1537, dtype=torch.float64)


def explorable() -> Explorable:
    """The curve, the kind of neuron, and how many of them."""
    controls = {
        "curve": choice("the curve", [(name, name) for name in FUNCTIONS], "a wave"),
        "neuron": choice("hidden neurons", list(NEURONS.items()), "step"),
        "n": slider("how many", 4, 1, MOST),
    }
    return Explorable(draw, controls, (9.6, 4.4), layout=[["curve", "error"]], width_ratios=[1.5, 1])


def network(f: Callable[[Tensor], Tensor], neuron: str, n: int) -> tuple[float, Tensor, Tensor]:
    """The output's bias, the n thresholds x_i and the n output weights v_i that follow f on [0, 1]."""
    if neuron == "step":  # a value that holds from the middle between two points to the next
        x = torch.arange(1, n + 1, dtype=torch.float64) / (n + 1)
        level = f((torch.arange(n + 1, dtype=torch.float64) + 0.5) / (n + 1))
        return float(level[0]), x, level.diff()
    x = torch.arange(n + 1, dtype=torch.float64) / n
    slope = f(x).diff() * n
    return float(f(x[:1])), x[:-1], torch.cat((slope[:1], slope.diff()))


def output(bias: float, thresholds: Tensor, weights: Tensor, neuron: str, x: Tensor) -> Tensor:
    """What the network says at each of x: every hidden neuron has weight 1 and the bias -x_i."""
    z = x[:, None] - thresholds
    hidden = (z >= 0).to(x) if neuron == "step" else z.clamp(min=0)
    return bias + hidden @ weights


def error(name: str, neuron: str, n: int) -> float:
    """The mean distance between the curve and the network on [0, 1]."""
    f = FUNCTIONS[name]
    return float((output(*network(f, neuron, n), neuron, GRID) - f(GRID)).abs().mean())


def draw(state: dict, axes: dict[str, Axes]) -> str:
    """`state`: curve, neuron, n."""
    f, neuron, n = FUNCTIONS[state["curve"]], state["neuron"], state["n"]
    bias, thresholds, weights = network(f, neuron, n)
    said = output(bias, thresholds, weights, neuron, GRID)
    axes["curve"].plot(GRID, f(GRID), color=GREY, linewidth=2.5, label="the curve")
    axes["curve"].plot(GRID, said, color=BLUE, linewidth=1.8, label="the network")
    axes["curve"].plot(
        thresholds, output(bias, thresholds, weights, neuron, thresholds), "o", color=ORANGE, markersize=4
    )
    low, high = float(f(GRID).min()), float(f(GRID).max())
    room = 0.1 * (high - low)  # what the network says lies between values of the curve
    axes["curve"].set(xlabel="x", ylabel="output", xlim=(0, 1), ylim=(low - room, high + room))
    axes["curve"].set_title("where each hidden neuron begins (dots)")
    axes["curve"].legend(loc="best")
    _draw_errors(axes["error"], state["curve"], n, neuron)
    return sentence(state)


def _draw_errors(axes: Axes, name: str, n: int, neuron: str) -> None:
    counts = [1, 2, 4, 8, 16, 32, MOST]
    for kind, color in (("step", BLUE), ("ramp", INK)):
        axes.plot(counts, [max(error(name, kind, k), 1e-6) for k in counts], color=color, label=f"{kind}s")
    axes.plot(n, max(error(name, neuron, n), 1e-6), "o", color=ORANGE, markersize=9, zorder=5)
    axes.set(xscale="log", yscale="log", xlabel="hidden neurons", ylabel="mean distance from the curve")
    axes.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
    axes.minorticks_off()
    axes.set(ylim=(1e-5, 2))
    decades(axes.yaxis)
    axes.set_title("more neurons, less error")
    axes.legend(loc="upper right")


def sentence(state: dict) -> str:
    name, neuron, n = state["curve"], state["neuron"], state["n"]
    now, half = error(name, neuron, n), error(name, neuron, max(1, n // 2))
    text = f"{n} {neuron}{'s' * (n > 1)}: the network is {now:.2g} from the curve on average"
    return f"{text}, with half as many {half:.2g}." if n > 1 else f"{text}."
