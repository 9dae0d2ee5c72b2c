"""A data-parallel training while it runs: loss and accuracy, how many images each rank reads, what it does when."""

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from hpcdl.widgets.kit.live import LiveFigure
from hpcdl.widgets.kit.style import BLUE, GREEN, GREY, ORANGE, PURPLE, decades
from hpcdl.widgets.pictures.bucket_timeline import Bar, draw_bars

if TYPE_CHECKING:
    from hpcdl.cluster import Record

DASHBOARD = [["loss", "accuracy", "rate"], ["timeline"] * 3]  # the axes of the dashboard
SMOOTH = 0.9  # weight of the past in a curve: the loss of a few images jumps from step to step
MARKERS = ("o", "s", "^", "D")
COLORS = (BLUE, ORANGE, GREEN, PURPLE)
SHOWN = ("epoch", "loss", "images_per_second")  # what is kept of each record


def fresh(epochs: int) -> dict:
    """The state of a picture before the first record."""
    ranks: defaultdict[int, dict[str, list[float]]] = defaultdict(lambda: {name: [] for name in SHOWN})
    return {"epochs": epochs, "ranks": ranks, "spans": {}, "accuracy": [], "said": ""}


def append(state: dict, record: "Record") -> None:
    """Add one `Record` of a training to `state`: a dict with `SHOWN`, perhaps `spans` and `accuracy`."""
    seen, new = state["ranks"][record.rank], record.value
    for name in SHOWN:
        seen[name].append(new[name])
    state["spans"][record.rank] = new.get("spans", [])
    if record.rank == 0 and "accuracy" in new:
        state["accuracy"].append((new["epoch"], new["accuracy"]))


def draw(state: dict, axes: dict[str, Axes]) -> str:
    """Draw a state as `fresh` makes it on axes "loss" and "rate", and where they are there "accuracy" and "timeline".

    Curves are running means; the raw values stand faintly behind them.
    """
    ranks = dict(sorted(state["ranks"].items()))
    _losses(axes["loss"], ranks, state["epochs"])
    _rates(axes["rate"], ranks, state["epochs"])
    if "accuracy" in axes:
        _accuracy(axes["accuracy"], state)
        _timeline(axes["timeline"], state["spans"])
    return state.get("said") or sentence(state, ranks)


def _losses(axes, ranks: dict, epochs: int) -> None:
    for i, (rank, steps) in enumerate(ranks.items()):
        look = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "markevery": [-1]}
        axes.plot(steps["epoch"], steps["loss"], color=look["color"], linewidth=0.6, alpha=0.3)
        axes.plot(steps["epoch"], smooth(steps["loss"]), label=f"rank {rank}", **look)
    axes.set(xlabel="epochs", ylabel="loss on its own images", title="Loss of each rank", yscale="log")
    axes.set(xlim=(0, epochs), ylim=(1e-3, 4))
    decades(axes.yaxis)


def _rates(axes, ranks: dict, epochs: int) -> None:
    for i, (rank, steps) in enumerate(ranks.items()):
        look = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "markevery": [-1]}
        axes.plot(steps["epoch"], thousands(steps), label=f"rank {rank}", **look)
    axes.set(xlabel="epochs", ylabel="thousand images/s", title="Speed of each rank", xlim=(0, epochs))
    # Thousands, in steps: the labels stay as wide as they were, and the frame is seldom redrawn.
    fastest = max((max(thousands(steps)) for steps in ranks.values()), default=0.0)
    axes.set_ylim(0, 0.5 * math.ceil((fastest + 0.1) / 0.36))  # room for the names above the curves
    axes.yaxis.set_major_formatter("{x:.1f}")
    if ranks:
        axes.legend(loc="upper left", ncols=4, fontsize=9, handlelength=1, handletextpad=0.3, columnspacing=0.7)


def _accuracy(axes, state: dict) -> None:
    axes.plot(*zip((0, 0.1), *state["accuracy"], strict=True), "o-", color=GREEN, markersize=4)
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set(xlabel="epochs", ylabel="held-out digits right", title="Accuracy", xlim=(0, state["epochs"]))
    axes.set(ylim=(0, 1.03))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")


def _timeline(axes, spans: dict) -> None:
    """The last step of each rank, from its own beginning on."""
    end = max((end for rows in spans.values() for *_, end in rows), default=0.01)
    ranks = sorted(spans)
    rows = [
        row
        for i, rank in enumerate(ranks)
        for name, start, end in spans[rank]
        for row in bars(i, name, start, end, least(spans))
    ]
    round_end = 0.005 * math.ceil(end / 0.005)  # 5 ms: the axis seldom changes
    draw_bars(axes, rows, max(len(ranks), 1), 1e3, "ms", round_end)
    axes.set_title("The last step of each rank")


def least(spans: dict) -> dict[str, float]:
    """Seconds of each bucket on the rank where it is under way for the shortest time: what came last waits for none."""
    times = defaultdict(list)
    for name, start, end in (span for rows in spans.values() for span in rows if span[0].startswith("bucket")):
        times[name].append(end - start)
    return {name: min(seconds) for name, seconds in times.items()}


def bars(rank: int, name: str, start: float, end: float, shortest: dict[str, float]) -> list[Bar]:
    """A span of a record: of a bucket its wait for the other ranks, then its message.

    To load images takes too little time to be seen.
    """
    if name.startswith("bucket"):
        sent = end - shortest[name]
        return [Bar(rank, "wait", start, sent), Bar(rank, "message", sent, end)]
    return [] if name == "load" else [Bar(rank, name, start, end)]


def sentence(state: dict, ranks: dict) -> str:
    """What the picture shows now."""
    if not ranks:
        return "No rank has reported yet."
    now = min(steps["epoch"][-1] for steps in ranks.values())
    loss = sum(smooth(steps["loss"])[-1] for steps in ranks.values()) / len(ranks)
    rate = sum(smooth(steps["images_per_second"])[-1] for steps in ranks.values())
    together = f"{len(ranks)} ranks together read {rate:,.0f} images/s" if len(ranks) > 1 else f"{rate:,.0f} images/s"
    right = f", {100 * state['accuracy'][-1][1]:.1f} % of the held-out digits right" if state.get("accuracy") else ""
    return f"Epoch {now:.1f} of {state['epochs']}: mean loss {loss:.3f}{right}; {together}."


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
        self.state = fresh(epochs)

    def add(self, record: "Record") -> None:
        """Add one `Record` of `hpcdl.training.train`, and redraw now and then."""
        append(self.state, record)
        self.update(self.state)
