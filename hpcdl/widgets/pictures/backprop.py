"""A small network with the current numbers on every edge: forward, then backward, one layer per click."""

from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.image import BboxImage
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from hpcdl.widgets.kit import palette
from hpcdl.widgets.kit.controls import slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.stepper import Stepper
from hpcdl.widgets.kit.style import CARD, DPI, FAINT, GREY, INK, VERMILLION
from hpcdl.widgets.kit.words import words
from hpcdl.widgets.pictures.backprop_steps import (
    EQUATIONS,
    GRADIENTS,
    LAST,
    NAMES,
    STAGES,
    STEP,
    WIDTHS,
    arithmetic,
    passes,
    sentence,
    short,
)

ALONG = (  # where on its edge the number of each weight stands, from 0 at its start, so that none hides another
    ((0.42, 0.66), (0.3, 0.6), (0.32, 0.5)),
    ((0.5, 0.68, 0.7), (0.3, 0.68, 0.5)),
    ((0.45, 0.45),),
)
CARD_SHAPE = ((-0.5, -0.17), (0.5, -0.17), (0.5, 0.17), (-0.5, 0.17), (-0.5, -0.17))  # behind a number, times its size
SIZE = (9.6, 5.2)  # inches
PANEL = (3.5, 3.35)  # inches, of the equations
SUMS = 6.2  # inches from the left, where equations and sums begin


def explorable() -> Explorable:
    """Input, target and learning rate of a 2-3-2-1 network, and the stage that is shown."""
    controls = {
        "stage": Stepper("stage", 0, 0, STEP),
        "x1": slider("input x₁", 1.0, -10.0, 10.0, 0.1),
        "x2": slider("input x₂", 0.5, -10.0, 10.0, 0.1),
        "y": slider("target y", 0.0, 0.0, 1.0, 0.01),
        "lr": slider("learning rate η", 2.0, 0.0, 50.0, 0.5),
    }
    return Explorable(draw, controls, figsize=SIZE)


def draw(state: dict, axes: Axes) -> str:
    stage = state["stage"]
    run = passes(state["x1"], state["x2"], state["y"], state["lr"])
    axes.set(xlim=(0.68, 6.65), ylim=(-1.55, 2.0))
    axes.axis("off")
    _titles(axes, stage)
    _labels(axes, [*_edges(axes, run, stage), *_neurons(axes, run, stage)])
    _equations(axes, STAGES[stage].equation, STAGES[stage].colour)
    place: dict[str, Any] = {"transform": axes.figure.dpi_scale_trans, "va": "top", "linespacing": 1.5}
    axes.text(SUMS, 1.7, "\n".join(arithmetic(run, stage)), fontsize=11, parse_math=False, **place)
    return sentence(run, stage)


def _titles(axes, stage: int) -> None:
    equation, layer, colour = STAGES[stage]
    name = "the input is a¹" if stage == 0 else NAMES[equation] + (f", layer {layer}" if equation in (0, 2) else "")
    headline = f"Stage {stage} of {STEP}: {name}"
    axes.text(0.7, 1.93, headline, color=colour, fontsize=13, weight="bold", va="center", parse_math=False)
    roles = ["input", *(f"layer {layer}" for layer in range(2, LAST)), f"layer {LAST} = L"]
    words(axes, [(1.0 + i, 1.63, role, GREY) for i, role in enumerate(roles)], size=12)


# The network: each part returns its labels as (x, y, text, colour)


def _place(layer: int, j: int) -> tuple[float, float]:
    """Where neuron j (from 0) of a layer (from 1) stands."""
    middle, gap = (WIDTHS[layer - 1] - 1) / 2, 1.08 if WIDTHS[layer - 1] > 2 else 1.3
    return float(layer), (middle - j) * gap


def _edges(axes, run, stage: int) -> list[tuple]:
    """All edges; their labels are the weights, then the gradients, then, after the step, the new weights."""
    numbers = run.weights if stage < GRADIENTS else run.new_weights if stage == STEP else run.grads
    lines, colours, labels = [], [], []
    for layer in range(2, LAST + 1):
        colour = STAGES[stage].colour if _lit(stage, layer) else None
        for j, k in np.ndindex(WIDTHS[layer - 1], WIDTHS[layer - 2]):
            start, end, along = _place(layer - 1, k), _place(layer, j), ALONG[layer - 2][j][k]
            x, y = (a + along * (b - a) for a, b in zip(start, end, strict=True))
            lines.append((start, end))
            colours.append(colour or FAINT)
            labels.append((x, y, short(numbers[layer - 2][j, k]), colour or GREY))
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=2, zorder=1), autolim=False)
    return labels


def _lit(stage: int, layer: int) -> bool:
    """Whether the edges into `layer` are at work: forward into it, the error back across them, or their gradients."""
    equation, at, _ = STAGES[stage]
    return {0: layer == at, 2: layer == at + 1, 3: True, 5: True}.get(equation, False)


def _neurons(axes, run, stage: int) -> list[tuple]:
    """The circles with their activations; their labels are z above and b or the error below."""
    equation, at, colour = STAGES[stage]
    neurons = [(layer, j) for layer in range(1, LAST + 1) for j in range(WIDTHS[layer - 1])]
    active = [at == layer or (equation == 4 and layer > 1) for layer, _ in neurons]
    edges = [
        colour if on else GREY if stage >= layer - 1 else FAINT for on, (layer, _) in zip(active, neurons, strict=True)
    ]
    widths = [3.0 if on else 1.5 for on in active]
    x, y = zip(*(_place(*neuron) for neuron in neurons), strict=True)
    axes.scatter(x, y, s=37**2, c=CARD, edgecolors=edges, linewidths=widths, zorder=2)
    known = [(layer, j) for layer, j in neurons if stage >= layer - 1]  # the forward pass has come here
    inside = [(*_place(layer, j), short(run.activations[layer - 1][j]), INK) for layer, j in known]
    for size, long in ((12, False), (9.5, True)):  # what fits the circle
        if fitting := [label for label in inside if (len(label[2]) > 4) == long]:
            words(axes, fitting, size=size, weight="bold")
    above = [(layer, j, 0.32, f"z {short(run.zs[layer - 2][j])}", GREY) for layer, j in known if layer > 1]
    below = [(layer, j, -0.32, *_below(run, stage, layer, j)) for layer, j in neurons if layer > 1]
    return [(x, y + up, *label) for layer, j, up, *label in above + below for x, y in [_place(layer, j)]]


def _below(run, stage: int, layer: int, j: int) -> tuple[str, str]:
    """Return the text below a neuron, and its colour: its bias, or its error once the backward pass has come there."""
    if 2 * LAST - layer <= stage < STEP:
        return f"δ {short(run.deltas[layer - 2][j])}", VERMILLION
    biases = run.new_biases if stage == STEP else run.biases
    return f"b {short(biases[layer - 2][j])}", GREY


def _labels(axes, labels) -> None:
    """Texts on small cards, so that no edge runs through a number."""
    x, y, _, _ = zip(*labels, strict=True)
    axes.plot(x, y, marker=CARD_SHAPE, markersize=40, mfc=CARD, mec="none", linestyle="none", zorder=1.5)
    words(axes, labels, size=10.5)


# The equations


def _equations(axes, active: int, colour: str) -> None:
    """All equations, the one at work in colour: kept as pixels, since formulas take as long as all the rest."""
    pixels = _panel(active, colour, palette.is_dark())
    height, width, _ = pixels.shape
    left, top = round((SUMS - 0.12) * DPI), round((SIZE[1] - 0.08) * DPI)
    image = BboxImage(Bbox.from_bounds(left, top - height, width, height), interpolation="nearest")
    image.set_data(pixels)
    axes.add_artist(image)


@lru_cache(maxsize=2 * len(STAGES))
def _panel(active: int, colour: str, dark: bool) -> np.ndarray:
    figure = Figure(figsize=PANEL, dpi=DPI, facecolor=CARD)
    for i, (name, equation) in enumerate(zip(NAMES, EQUATIONS, strict=True)):
        y, on = 0.99 - i / len(NAMES), i == active
        text: dict[str, Any] = {"color": colour if on else GREY, "va": "top"}
        figure.text(
            0.035, y, f"({i}) {name}" if 1 <= i <= 4 else name, fontsize=9.5, weight="bold" if on else 400, **text
        )
        figure.text(0.06, y - 0.055, equation, fontsize=12.5, **text)
        if on:
            figure.add_artist(_bar(y, colour))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())


def _bar(y: float, colour: str):
    return Rectangle((0.0, y - 0.14), 0.015, 0.14, color=colour)
