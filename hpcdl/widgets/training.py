"""A data-parallel training while it runs: the loss of every rank, and how many images each reads in a second."""

import math
from collections import defaultdict

from hpcdl.widgets.explorable import LiveFigure
from hpcdl.widgets.style import BLUE, GREEN, ORANGE, PURPLE, decades

SMOOTH = 0.9  # weight of the past in a curve: the loss of a few images jumps from step to step
MARKERS = ("o", "s", "^", "D")
COLORS = (BLUE, ORANGE, GREEN, PURPLE)


def draw(state: dict, axes: dict) -> str:
    """Draw `{"epochs": int, "ranks": {rank: {"epoch": [...], "loss": [...], "images_per_second": [...]}}}`.

    `epoch` is the position of each step in epochs. Curves are running means; the raw values stand faintly behind them.
    """
    loss, rate = axes["loss"], axes["rate"]
    ranks = dict(sorted(state["ranks"].items()))
    for i, (rank, steps) in enumerate(ranks.items()):
        look = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "markevery": [-1]}
        loss.plot(steps["epoch"], steps["loss"], color=look["color"], linewidth=0.6, alpha=0.3)
        loss.plot(steps["epoch"], smooth(steps["loss"]), label=f"rank {rank}", **look)
        rate.plot(steps["epoch"], thousands(steps), label=f"rank {rank}", **look)
    loss.set(xlabel="epochs", ylabel="loss on its own images", title="Loss of each rank", yscale="log")
    loss.set(xlim=(0, state["epochs"]), ylim=(1e-3, 4))
    decades(loss.yaxis)
    rate.set(xlabel="epochs", ylabel="thousand images/s", title="Speed of each rank", xlim=(0, state["epochs"]))
    # Thousands, in steps: the labels stay as wide as they were, and the frame is seldom drawn anew.
    fastest = max((max(thousands(steps)) for steps in ranks.values()), default=0.0)
    rate.set_ylim(0, 0.5 * math.ceil((fastest + 0.1) / 0.4))
    rate.yaxis.set_major_formatter("{x:.1f}")
    if ranks:
        rate.legend(loc="lower right", ncols=2)
    return sentence(state["epochs"], ranks)


def sentence(epochs: int, ranks: dict) -> str:
    """What the picture shows now."""
    if not ranks:
        return "No rank has reported yet."
    now = min(steps["epoch"][-1] for steps in ranks.values())
    loss = sum(smooth(steps["loss"])[-1] for steps in ranks.values()) / len(ranks)
    rate = sum(smooth(steps["images_per_second"])[-1] for steps in ranks.values())
    together = f"{len(ranks)} ranks together read {rate:,.0f} images/s" if len(ranks) > 1 else f"{rate:,.0f} images/s"
    return f"Epoch {now:.1f} of {epochs}: mean loss {loss:.3f}; {together}."


def thousands(steps: dict) -> list[float]:
    """The speed of a rank's steps in thousand images per second, smoothed."""
    return [rate / 1000 for rate in smooth(steps["images_per_second"])]


def smooth(values: list[float]) -> list[float]:
    """The running mean with exponential weights, corrected for its start; NaN (a rank without images) is left out."""
    mean = weight = 0.0
    means = []
    for value in values:
        if value == value:  # not NaN
            mean, weight = SMOOTH * mean + (1 - SMOOTH) * value, SMOOTH * weight + 1 - SMOOTH
        means.append(mean / weight if weight else value)
    return means


class TrainingFigure(LiveFigure):
    """The picture, fed with the records of a run:

    with TrainingFigure(epochs=15) as picture:
        for record in cluster.stream(train, publish):
            picture.add(record)
    """

    def __init__(self, epochs: int):
        super().__init__(draw, figsize=(9.6, 4.2), layout=[["loss", "rate"]], seconds=0.25)
        self.state = {
            "epochs": epochs,
            "ranks": defaultdict(lambda: {"epoch": [], "loss": [], "images_per_second": []}),
        }

    def add(self, record) -> None:
        """Take in one `Record` of `hpcdl.ddp.train`, and redraw now and then."""
        seen, new = self.state["ranks"][record.rank], record.value
        for name in ("epoch", "loss", "images_per_second"):
            seen[name].append(new[name])
        self.update(self.state)
