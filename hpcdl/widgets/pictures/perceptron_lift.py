"""XOR, lifted: one more coordinate, t x₁x₂, and a flat cut does what no line in the plane can.

The points are those of the plane's XOR. The higher the lift t, the wider the margin of the level cut at height 0, and
the fewer mistakes Novikoff's bound (R / margin)^2 allows.
"""

from functools import lru_cache
from itertools import product
from math import cos, nan, pi, sin

import torch
from matplotlib.axes import Axes

from hpcdl.nn.perceptron import History, novikoff_bound, predict, train, with_bias
from hpcdl.widgets.kit.controls import player, slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.plane import draw_points, positions, shade_sides
from hpcdl.widgets.kit.style import BLUE, CARD, FAINT, GREEN, GREY, ORANGE, decades
from hpcdl.widgets.pictures.perceptron_plane import DATA

POINTS = DATA["XOR"]
X, Y = positions(POINTS), torch.tensor([float(y) for _, _, y in POINTS], dtype=torch.float64)
LEVEL = torch.tensor([0.0, 0.0, 0.0, -1.0], dtype=torch.float64)  # the cut at height 0: +1 below, where x_1 x_2 < 0
MAX_EPOCHS = 300
LIFTS = tuple(k / 20 for k in range(1, 31))  # where the curve of mistakes is computed


def lifted(X: torch.Tensor, t: float) -> torch.Tensor:
    """(1, x_1, x_2, t x_1 x_2) for each row (x_1, x_2)."""
    return torch.cat([with_bias(X), t * X[:, :1] * X[:, 1:]], dim=1)


@lru_cache(maxsize=64)
def run(t: float) -> History:
    """The perceptron on XOR, lifted by t."""
    return train(lifted(X, t), Y, lr=0.5, max_epochs=MAX_EPOCHS)


def bound(t: float) -> float:
    """Novikoff's bound on the mistakes, from the level cut; infinite without a lift."""
    return novikoff_bound(lifted(X, t), Y, LEVEL)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    """`state`: t (height of the lift), epoch (how many have passed), turn (of the view, in degrees)."""
    t = round(state["t"], 2)
    history = run(t)
    epochs = min(state["epoch"], len(history.mistakes))
    w = history.weights[sum(history.mistakes[:epochs])]
    draw_below(axes["below"], w, t)
    draw_space(axes["space"], w, t, state["turn"])
    draw_mistakes(axes["mistakes"], t)
    return sentence(history, t, epochs)


def draw_below(axes: Axes, w: torch.Tensor, t: float) -> None:
    """The plane from above: the cut's shadow is a curve."""
    shade_sides(axes, lambda grid: predict(w, lifted(grid, t)))
    draw_points(axes, POINTS, predict(w, lifted(X, t)).tolist())
    axes.set(title="in the plane", xlabel="$x_1$", ylabel="$x_2$")


def draw_space(axes: Axes, w: torch.Tensor, t: float, turn: float) -> None:
    """The same points at their heights t x_1 x_2, and the plane that cuts them, seen from the side."""
    view = _view(turn)
    axes.fill(*view([(-2, -2, 0), (2, -2, 0), (2, 2, 0), (-2, 2, 0)]), color=FAINT, alpha=0.5, linewidth=0)
    if cut := _cut(w):
        axes.fill(*view(cut), facecolor=GREEN, edgecolor=GREEN, alpha=0.3, linewidth=1.5)
    for label, marker, color in ((1, "o", BLUE), (-1, "s", ORANGE)):
        own = [(x1, x2) for x1, x2, y in POINTS if y == label]
        posts = [end for x1, x2 in own for end in ((x1, x2, 0), (x1, x2, t * x1 * x2), (nan, nan, nan))]
        axes.plot(*view(posts), color=GREY, linewidth=1)
        tops = view([(x1, x2, t * x1 * x2) for x1, x2 in own])
        axes.plot(*tops, marker, color=color, markersize=8, markeredgecolor=CARD)
    axes.set(title="lifted by $t\\,x_1 x_2$", xlim=(-2.85, 2.85), ylim=(-2.85, 2.85), aspect="equal", anchor="N")
    axes.set_axis_off()


def _view(turn: float):
    """Turn about the vertical axis, then look down a little: a function from points (x, y, z) to two lists."""
    a, tilt = turn * pi / 180, 0.42

    def project(points):
        across = [x * cos(a) - y * sin(a) for x, y, _ in points]
        up = [z * cos(tilt) + (x * sin(a) + y * cos(a)) * sin(tilt) for x, y, z in points]
        return across, up

    return project


def _cut(w: torch.Tensor, box: float = 2.0) -> list[tuple[float, ...]]:
    """The part of w_0 + w_1 x + w_2 y + w_3 z = 0 inside the box |x|, |y|, |z| <= box, as a polygon; [] for none.

    Its corners are where it meets the box's twelve edges, in the order of their angle about their middle.
    """
    found = []
    for axis in range(3):
        for others in product((-box, box), repeat=2):
            ends = [(*others[:axis], end, *others[axis:]) for end in (-box, box)]
            low, high = (float(w[0] + w[1:] @ w.new_tensor(end)) for end in ends)
            if low * high < 0:
                along = -box + 2 * box * low / (low - high)
                found.append((*others[:axis], along, *others[axis:]))
    if len(found) < 3:
        return []
    arms = w.new_tensor(found) - w.new_tensor(found).mean(dim=0)
    across = torch.linalg.cross(w[1:], arms[0])
    angles = torch.atan2(arms @ across / across.norm(), arms @ arms[0] / arms[0].norm())
    return [found[i] for i in angles.argsort().tolist()]


def draw_mistakes(axes: Axes, t: float) -> None:
    """Mistakes until it settles, and the bound, against the height of the lift."""
    axes.plot(LIFTS, [bound(s) for s in LIFTS], color=GREY, linestyle="--")
    axes.plot(LIFTS, [len(run(s).samples) for s in LIFTS], color=BLUE)
    axes.text(0.5, 500, "Novikoff's bound", color=GREY)
    axes.text(0.5, 8, "mistakes made", color=BLUE)
    if run(t).settled:
        axes.plot(t, len(run(t).samples), "o", color=BLUE, markersize=10)
    axes.set(yscale="log", xlim=(0, 1.55), ylim=(1, 1e4))
    axes.set(xlabel="lift t", ylabel="mistakes", title="mistakes until it settles")
    decades(axes.yaxis)


def sentence(history: History, t: float, epochs: int) -> str:
    """How far it has come and how it ends."""
    made, total = sum(history.mistakes[:epochs]), len(history.samples)
    if not t:
        return (
            f"t = 0: flat. No line separates XOR, so it never settles: {made} mistakes in {epochs} epochs, and no end."
        )
    if not history.settled:
        return (
            f"t = {t:g}: after {MAX_EPOCHS} epochs it has not settled; the bound still allows {bound(t):,.0f} mistakes."
        )
    if epochs < len(history.mistakes):
        return f"t = {t:g}: {made} mistakes in {epochs} of {len(history.mistakes)} epochs. It will settle."
    return f"t = {t:g}: settled after {total} mistakes in {epochs} epochs; Novikoff's bound allows {bound(t):,.0f}."


def explorable() -> Explorable:
    """Lift XOR off the plane and watch the perceptron settle."""
    controls = {
        "t": slider("lift t", 0.8, 0.0, 1.5, 0.05),
        "epoch": player("epochs passed", 40, 0, 40, milliseconds=300),
        "turn": slider("turn the view (degrees)", 35, 0, 90, 5),
    }
    return Explorable(draw, controls, (9.6, 4.2), [["below", "space", "mistakes"]], width_ratios=[1, 1.15, 1])
