"""Two neurons draw two lines, a third one votes: move the three thresholds until all four corners of XOR are right.

h_1 = sgn(b_1 + x_1 + x_2)    h_2 = sgn(b_2 - x_1 - x_2)    yhat = sgn(b_3 + h_1 + h_2)
"""

from copy import copy

import torch
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, MultipleLocator

from hpcdl.nn.perceptron import predict, with_bias
from hpcdl.widgets.kit.controls import slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.plane import draw_line, draw_points, shade_sides
from hpcdl.widgets.kit.style import CARD, GREEN, INK, PURPLE

CORNERS = ((-1.0, -1.0, -1), (-1.0, 1.0, 1), (1.0, -1.0, 1), (1.0, 1.0, -1))
LIMIT = 2.2
STACK = 0.3  # between points that land together, each way


def weights(b1: float, b2: float, b3: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden weights (2, 3), a row per neuron, and output weights (3,); the first entry of each is its bias."""
    return torch.tensor([[b1, 1.0, 1.0], [b2, -1.0, -1.0]]), torch.tensor([b3, 1.0, 1.0])


def hidden(W: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """What the two hidden neurons say of each row of X (n, 2): (n, 2), each entry +1 or -1."""
    return torch.stack([predict(w, with_bias(X)) for w in W], dim=1)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    """`state`: b1, b2, b3, the three thresholds."""
    W, v = weights(state["b1"], state["b2"], state["b3"])
    table = torch.tensor(CORNERS)
    H = hidden(W, table[:, :2])
    called = predict(v, with_bias(H))
    draw_inputs(axes["inputs"], W, v, called.tolist())
    draw_hidden(axes["hidden"], v, H, called.tolist())
    return sentence(H, called, table[:, 2])


def draw_inputs(axes: Axes, W: torch.Tensor, v: torch.Tensor, called: list[float]) -> None:
    shade_sides(axes, lambda grid: predict(v, with_bias(hidden(W, grid.float()))), LIMIT)
    for w, color in zip(W, (GREEN, PURPLE), strict=True):
        draw_line(axes, w, color=color, linewidth=3)
    draw_points(axes, CORNERS, called)
    axes.set(title="inputs: two neurons, two lines", xlabel="$x_1$", ylabel="$x_2$")
    _ticks(axes, MultipleLocator(1))


def draw_hidden(axes: Axes, v: torch.Tensor, H: torch.Tensor, called: list[float]) -> None:
    """Where the four corners land; corners that land together stand side by side."""
    shade_sides(axes, lambda grid: predict(v, with_bias(grid.float())), LIMIT)
    draw_line(axes, v, color=INK)
    places = beside(H.tolist())
    for (h1, h2), (x1, x2, _) in zip(places, CORNERS, strict=True):
        corner = f"({x1:+g}, {x2:+g})".replace("-", "−")
        text = axes.text(h1 + 0.17, h2, corner, va="center", fontsize=11)
        text.set_path_effects([withStroke(linewidth=3, foreground=CARD)])
    draw_points(axes, [(*place, y) for place, (*_, y) in zip(places, CORNERS, strict=True)], called)
    axes.set(title="what the third neuron sees", xlabel="$h_1$", ylabel="$h_2$")
    _ticks(axes, FixedLocator((-1, 1)))
    axes.xaxis.label.set_color(GREEN)
    axes.yaxis.label.set_color(PURPLE)


def beside(landed: list[list[float]]) -> list[tuple[float, float]]:
    """Places for points, those that landed together in a row along the output's line: on the side where they landed."""
    places = []
    for i, (h1, h2) in enumerate(landed):
        shift = STACK * (landed[:i].count([h1, h2]) - (landed.count([h1, h2]) - 1) / 2)
        places.append((h1 + shift, h2 - shift))
    return places


def _ticks(axes, locator) -> None:
    axes.xaxis.set_major_locator(locator)  # set_xticks would recreate tick objects, which takes longer than the rest
    axes.yaxis.set_major_locator(copy(locator))


def sentence(H: torch.Tensor, called: torch.Tensor, y: torch.Tensor) -> str:
    """How many corners are right, and what to look for."""
    right = int((called == y).sum())
    if right == 4:
        return "All four corners are right: XOR, computed by three neurons that can each only draw one line."
    votes = H.sum(dim=1)
    if votes[y > 0].min() > votes[y < 0].max():
        return f"{right} of 4 corners are right. The third neuron sees the classes apart: move its line between them."
    return f"{right} of 4 corners are right. Where they land, no b₃ separates the classes: move a coloured line."


def explorable() -> Explorable:
    """Set three thresholds by hand until the network computes XOR."""
    controls = {
        "b1": slider("b₁ (green)", -0.5, -3.0, 3.0, 0.25),
        "b2": slider("b₂ (pink)", -1.25, -3.0, 3.0, 0.25),
        "b3": slider("b₃ (output)", 0.0, -3.0, 3.0, 0.25),
    }
    return Explorable(draw, controls, (9.6, 4.7), [["inputs", "hidden"]])
