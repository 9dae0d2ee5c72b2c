"""The perceptron in the plane: click points onto it, step through the updates, and watch the line turn.

The line is where z = w_0 + w_1 x_1 + w_2 x_2 = 0; the arrow is (w_1, w_2), the direction in which z grows.
"""

from functools import lru_cache

import ipywidgets as widgets
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from hpcdl.nn.perceptron import History, predict, train, with_bias
from hpcdl.widgets.kit.clicks import ClickableImage, data_position
from hpcdl.widgets.kit.controls import choice, player, stops
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.plane import LIMIT, draw_arrow, draw_line, draw_points, positions, shade_sides
from hpcdl.widgets.kit.style import BEHIND, FAINT, GREY, INK

MAX_EPOCHS = 30
MAX_POINTS = 200
STARTS = {"zero": (0.0, 0.0, 0.0), "somewhere": (0.6, -1.0, 0.5)}


def clouds(*centres: tuple[float, float, int], spread: float, each: int = 8) -> tuple:
    """Points (x_1, x_2, label) around each centre (x_1, x_2, label), the same every time, in mixed order."""
    noise = torch.randn(each, len(centres), 2, generator=torch.Generator().manual_seed(3)) * spread
    return tuple(
        (a + float(dx), b + float(dy), label)
        for row in noise
        for (a, b, label), (dx, dy) in zip(centres, row, strict=True)
    )


DATA = {
    "far from the origin": clouds((2.3, 2.2, 1), (1.0, 1.2, -1), spread=0.22),
    "two clouds": clouds((1.7, 1.2, 1), (0.2, -0.6, -1), spread=0.45),
    "a narrow gap": clouds((1.5, 1.1, 1), (0.7, 0.1, -1), spread=0.3),
    "overlapping": clouds((0.6, 0.4, 1), (0.0, -0.2, -1), spread=0.85),
    "XOR": clouds((1, 1, -1), (-1, 1, 1), (-1, -1, -1), (1, -1, 1), spread=0.3, each=4),
    "nothing yet": (),
}


@lru_cache(maxsize=16)
def run(points: tuple, lr: float, start: tuple) -> History:
    """The perceptron's history on these points (x_1, x_2, label); with none it has nothing to do."""
    table = torch.tensor(points, dtype=torch.float64).reshape(-1, 3)
    w0 = torch.tensor(start, dtype=torch.float64)
    return train(with_bias(table[:, :2]), table[:, 2], lr, MAX_EPOCHS, w0)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    """`state`: points, data, lr, start, update (how many updates have been made)."""
    history = run(state["points"], state["lr"], STARTS[state["start"]])
    k = min(state["update"], len(history.samples))
    draw_plane(axes["plane"], state["points"], history, k)
    draw_mistakes(axes["mistakes"], history, k)
    return sentence(state["points"], history, k)


def draw_plane(axes: Axes, points: tuple, history: History, k: int) -> None:
    w = history.weights[k]
    shade_sides(axes, lambda grid: predict(w, with_bias(grid)))
    if k:
        draw_line(axes, history.weights[k - 1], color=GREY, linestyle=(0, (4, 3)), linewidth=1.4)
    draw_line(axes, w, color=INK)
    draw_arrow(axes, w)
    draw_points(axes, points, predict(w, with_bias(positions(points))).tolist())
    if k:
        x1, x2, _ = points[history.samples[k - 1]]
        axes.plot(x1, x2, "o", markersize=19, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.8)
    numbers = ", ".join(f"{value:.3g}".replace("-", "−") for value in w.tolist())
    axes.text(-0.96 * LIMIT, -0.96 * LIMIT, f"w = ({numbers})", va="bottom", fontsize=11, bbox=BEHIND)
    axes.set(title="the plane; hollow: called wrong", xlabel="$x_1$", ylabel="$x_2$")


def draw_mistakes(axes: Axes, history: History, k: int) -> None:
    epochs = range(1, len(history.mistakes) + 1)
    axes.vlines(epochs, 0, history.mistakes, color=FAINT, linewidth=min(14, 260 / len(epochs)))
    if k:
        now = history.epochs[k - 1]
        axes.vlines(now + 1, 0, history.mistakes[now], color=INK, linewidth=min(14, 260 / len(epochs)))
    highest = max(4, *history.mistakes) if len(epochs) > 1 else max(4, history.mistakes[0])
    axes.set(xlim=(0.3, max(6, len(epochs)) + 0.7), ylim=(0, 1.1 * highest))
    axes.set(xlabel="epoch", ylabel="updates", title="updates in each epoch")
    for axis in (axes.xaxis, axes.yaxis):
        locator = axis.get_major_locator()
        assert isinstance(locator, MaxNLocator)  # of a linear axis
        locator.set_params(integer=True)


def sentence(points: tuple, history: History, k: int) -> str:
    """What has just happened, and how it ends."""
    if not points:
        return "Click into the plane to add points. Shift-click adds the other class; a click on a point removes it."
    total, epochs = len(history.samples), len(history.mistakes)
    if not history.settled:
        end = f"It does not settle: epoch {epochs} still makes {_count(history.mistakes[-1], 'update')}."
    elif k < total:
        end = f"It will settle after {_count(total, 'update')}."
    else:
        end = f"It has settled: epoch {epochs} passes without an update."
    if len({y for _, _, y in points}) == 1:
        end += " (There is only one class.)"
    if k == 0:
        zero = not history.weights[0].any()
        begin = "w = 0 makes z = 0 everywhere, and sgn(0) = +1." if zero else "The start, before any update."
    else:
        y = points[history.samples[k - 1]][2]
        was, is_, sign = ("−1", "+1", "+") if y > 0 else ("+1", "−1", "−")
        begin = f"Update {k} of {total}: the ringed point was called {was} and is {is_}, so w became w {sign} 2r x."
    return f"{begin} {end}"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


class Plane(Explorable):
    """The explorable: `points` is what was clicked, the controls are the rest of the state."""

    def __init__(self, data: str):
        self.points, self._adjusting = DATA[data], False
        controls = {
            "data": choice("points", list(DATA), data),
            "update": player("update", 0, 0, 0, milliseconds=500),
            "lr": stops("r", [0.01, 0.1, 0.5, 1.0, 10.0], 0.5),
            "start": choice("start w at", list(STARTS), "zero"),
        }
        super().__init__(draw, controls, (9.6, 4.7), [["plane", "mistakes"]], image=ClickableImage(self._click))
        self.label = widgets.ToggleButtons(options=[("● +1", 1), ("■ −1", -1)], style={"button_width": "56px"})
        self.back = _button("remove last point", lambda: self.set_points(self.points[:-1]))
        self.clear = _button("clear", lambda: self.set_points(()))
        image, row = self.view.children
        first = (controls["data"], widgets.Label("click adds"), self.label, self.back, self.clear)
        row.children = row.children[1:]
        self.view.children = (image, widgets.HBox(first, layout={"grid_gap": "8px", "margin": "4px 0 0 0"}), row)

    @property
    def state(self) -> dict:
        """The controls' values and the points."""
        return {**super().state, "points": self.points}

    def set_points(self, points: tuple) -> None:
        """Show the run on other points, at its end."""
        self.points = points[:MAX_POINTS]
        self._adjust(at=MAX_POINTS * MAX_EPOCHS)
        self._redraw()

    def _redraw(self, change=None) -> None:
        if self._adjusting:
            return
        if change is not None and change.owner is self.controls["data"]:
            self.points = DATA[change.new]
            self._adjust(at=1)
        elif change is None or change.owner is not self.controls["update"]:
            self._adjust(at=self.controls["update"].value)
        super()._redraw()

    def _adjust(self, at: int) -> None:
        """Give the update slider as many places as this run has updates, and put it `at` one of them."""
        state = self.state
        total = len(run(state["points"], state["lr"], STARTS[state["start"]]).samples)
        self._adjusting = True  # the slider's own changes are not the student's
        try:
            for part in self.controls["update"].children:
                part.max = total
            self.controls["update"].value = min(at, total)
        finally:
            self._adjusting = False

    def _click(self, x: float, y: float, shift: bool) -> None:
        """A click on a point removes it; elsewhere in the plane it adds one."""
        axes = self.picture.axes
        assert isinstance(axes, dict)  # there is a layout
        place = data_position(axes["plane"], x, y)
        if place is None:
            return
        kept = tuple(point for point in self.points if max(abs(point[0] - place[0]), abs(point[1] - place[1])) > 0.12)
        if len(kept) == len(self.points):
            kept = (*kept, (*place, -self.label.value if shift else self.label.value))
        self.set_points(kept)


def _button(label: str, action) -> widgets.Button:
    button = widgets.Button(description=label, layout={"width": "max-content"})
    button.on_click(lambda _button: action())
    return button


def explorable(data: str = "far from the origin") -> Plane:
    """Click points onto the plane and step through the perceptron's updates."""
    return Plane(data)
