"""How large the gradient is, layer by layer, in a deep network: sigmoid beside ReLU."""

import math
from functools import lru_cache
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from hpcdl.nn import mlp
from hpcdl.widgets.kit import style, units
from hpcdl.widgets.kit.controls import slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import BLUE, ORANGE, Alarm

WIDTH, SAMPLES = 32, 16  # neurons of every layer, and inputs in the batch
DEEPEST = 40
LEAST, MOST = 1e-20, 1e12  # the ends of the picture's axis
NETWORKS = {"sigmoid": (mlp.SIGMOID, BLUE, "o"), "ReLU": (mlp.RELU, ORANGE, "s")}


def explorable() -> Explorable:
    """Depth and size of the initial weights of two networks that differ in their activation alone."""
    controls = {
        "depth": slider("layers L", 20, 2, DEEPEST),
        "scale": slider("size of the weights", 1.4, 0.0, 8.0, 0.1),
    }
    return Explorable(draw, controls, layout=[["norms", "slopes"]], width_ratios=[1.35, 1])


@lru_cache(maxsize=64)
def measure(name: str, depth: int, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """`(norms, slopes)` by layer 2 to `depth`: |dC/dW^l| for a batch, and the mean of f'(z^l)."""
    activation = NETWORKS[name][0]
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(SAMPLES, WIDTH, generator=generator, dtype=torch.float64)
    Y = torch.rand(SAMPLES, WIDTH, generator=generator, dtype=torch.float64)
    weights, biases = mlp.initial([WIDTH] * depth, generator, scale, torch.float64)
    zs, _ = mlp.feedforward(weights, biases, X, activation)
    weight_grads, _ = mlp.backprop(weights, biases, X, Y, activation)
    return torch.stack([g.norm() for g in weight_grads]), torch.stack([activation.prime(z).mean() for z in zs])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    layers = range(2, state["depth"] + 1)
    for name, (_, colour, marker) in NETWORKS.items():
        norms, slopes = measure(name, **state)
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5, "label": name}
        axes["norms"].semilogy(layers, norms.clamp(LEAST, MOST), **look)
        axes["slopes"].plot(layers, slopes, **look)
    for part in axes.values():
        part.set(xlim=(1.5, DEEPEST + 0.5), xlabel="layer l (2 is next to the input)")
        part.xaxis.set_major_locator(MultipleLocator(10))
    axes["norms"].set(ylim=(LEAST, MOST), ylabel="|∂C/∂Wˡ|")
    axes["norms"].set_title("Size of the gradient")
    axes["slopes"].legend(loc="upper right")
    style.decades(axes["norms"].yaxis)
    axes["slopes"].set(ylim=(-0.03, 1.03), ylabel="mean of σ'(zˡ)")
    axes["slopes"].set_title("Slope that each error passes")
    return verdict(**state)


def verdict(depth: int, scale: float) -> str:
    """How much of the last layer's gradient arrives at the first one, in both networks."""
    if scale == 0:
        return Alarm("All weights are 0: no error finds a way back, and no layer but the last can learn.")
    if depth == 2:
        return "With one layer of weights there is nothing to pass back. Add layers."
    told = " and ".join(f"{_change(name, depth, scale)} ({name})" for name in NETWORKS)
    return f"On its way from layer {depth} back to layer 2 the gradient {told}."


def _change(name: str, depth: int, scale: float) -> str:
    norms, _ = measure(name, depth, scale)
    last, first = float(norms[-1]), float(norms[0])
    if first == 0:
        return "vanishes altogether"
    if max(first, last) > 1e6:
        return f"explodes to {power_of_ten(max(first, last))}"
    if max(first, last) < 1e-6:
        return f"is only {power_of_ten(max(first, last))} everywhere"
    if 0.1 <= first / last <= 10:
        return "keeps its size"
    factor = max(first / last, last / first)
    return f"{'shrinks' if first < last else 'grows'} {power_of_ten(factor)}-fold"


def power_of_ten(x: float) -> str:
    """`x` > 0 to the nearest power of ten: `10⁻⁹`."""
    return f"10{units.raised(round(math.log10(x)))}"
