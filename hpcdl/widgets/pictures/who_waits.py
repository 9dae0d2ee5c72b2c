"""Who waits for whom: four workers under a staleness s, and the loss that their server has meanwhile.

A worker may start an iteration when all workers have finished all but s of those before it (Ho et al. 2013, "More
effective distributed ML via a stale synchronous parallel parameter server"): s = 0 is BSP, s = infinity ASP.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from hpcdl.consistency.clock import timeline
from hpcdl.widgets.kit import palette, style
from hpcdl.widgets.kit.controls import choice, slider, stops
from hpcdl.widgets.kit.explorable import Explorable

WORKERS, ITERATIONS = 4, 60
SLOW = 3  # the worker that is slow
SHOWN = 24.0  # seconds
TARGET = 0.06  # of the loss at the start
LR = 0.15
STALENESS = (0, 1, 2, 3, 4, 5, 6, 7, 8, math.inf)
COMPUTES, PULLS, WAITS = style.BLUE, style.ORANGE, style.FAINT

Spans = list[list[tuple[float, float]]]


def explorable() -> Explorable:
    """The staleness, one slow worker, chance, what a pull costs, and the axis of the loss."""
    controls = {
        "s": stops("staleness s", [(label(s), s) for s in STALENESS], 0),
        "factor": slider("worker 3 is slower, times", 3.0, 1.0, 6.0, 0.5, ".1f"),
        "jitter": slider("jitter", 0.5, 0.0, 1.0, 0.1, ".1f"),
        "pull": slider("a pull, s", 0.1, 0.0, 1.0, 0.1, ".1f"),
        "over": choice("loss over", [("time", "time"), ("updates", "updates")], "time"),
    }
    return Explorable(draw, controls, (9.6, 5.4), layout=[["time"], ["loss"]], height_ratios=[1.1, 1])


def label(s: float) -> str:
    return "∞" if math.isinf(s) else str(s)


def clocks(seconds: Sequence[Sequence[float]], staleness: float) -> Spans:
    """Start and end of iteration k of worker w, by the library's recurrence."""
    found = timeline(seconds, staleness)
    return [list(zip(*of, strict=True)) for of in zip(found.start.tolist(), found.end.tolist(), strict=True)]


def seconds_of(factor: float, jitter: float, pull: float) -> list[list[float]]:
    """An iteration takes 1 s on average, and a pull; jitter makes the one second a share of chance."""
    chance = np.random.default_rng(1).exponential(size=(WORKERS, ITERATIONS))
    times = 1 - jitter + jitter * chance
    times[SLOW] *= factor
    return (times + pull).tolist()


@lru_cache(maxsize=64)
def run(s: float, factor: float, jitter: float, pull: float) -> tuple[Spans, np.ndarray, np.ndarray]:
    """The spans, and time and loss after each update: gradients of what the server had when they began.

    The loss is a valley in 12 dimensions of curvatures 1 to 0.1. Worker 3 has samples unlike all others': a server that
    seldom hears of them learns something else.
    """
    spans, rng = clocks(seconds_of(factor, jitter, pull), s), np.random.default_rng(2)
    curvature = np.geomspace(1.0, 0.1, 12)
    minima, noise = 0.3 * rng.standard_normal((WORKERS, 12)), 0.1 * rng.standard_normal((WORKERS, ITERATIONS, 12))
    minima[SLOW] += 6.0 * rng.choice([-1.0, 1.0], 12)
    best, w, seen = minima.mean(0), np.full(12, 4.0), {}
    times, losses = [0.0], [float(curvature @ (w - best) ** 2)]
    for time, starts, j, k in events(spans):
        if starts:
            seen[j] = w
            continue
        w = w - LR * (curvature * (seen[j] - minima[j]) + noise[j, k])
        times.append(time)
        losses.append(float(curvature @ (w - best) ** 2))
    return spans, np.array(times), np.array(losses) / losses[0]


def events(spans: Spans) -> list[tuple[float, bool, int, int]]:
    """(time, whether it starts, worker, iteration), in order; at equal times ends come first."""
    starts = [(start, True, j, k) for j, mine in enumerate(spans) for k, (start, _) in enumerate(mine)]
    ends = [(end, False, j, k) for j, mine in enumerate(spans) for k, (_, end) in enumerate(mine)]
    return sorted(event for event in starts + ends if event[0] <= SHOWN)


def reached(times: np.ndarray, losses: np.ndarray) -> float:
    """From when on the loss stays below `TARGET`; infinity if it never does."""
    above = np.flatnonzero(losses > TARGET)
    return float(times[above[-1] + 1]) if above[-1] + 1 < len(times) else math.inf


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    setting = state["factor"], state["jitter"], state["pull"]
    spans, times, losses = run(state["s"], *setting)
    _draw_time(axes["time"], spans, state["pull"])
    _draw_loss(axes["loss"], state, setting)
    name = {0: " (BSP)", math.inf: " (ASP)"}.get(state["s"], " (SSP)")
    axes["time"].set_title(f"Four workers, s = {label(state['s'])}{name}")
    done, waits = shares(spans)
    when = reached(times, losses)
    low = f"below {100 * TARGET:.0f} %"
    stays = f"stays {low} from {when:.1f} s on" if when < math.inf else f"does not stay {low}"
    return (
        f"In {SHOWN:.0f} s the workers finish {done} iterations and wait for {100 * waits:.0f} % of their time. "
        f"The loss {stays}."
    )


def shares(spans: Spans) -> tuple[int, float]:
    """Iterations that end within the timeline, and the share of it in which workers wait."""
    done = sum(end <= SHOWN for mine in spans for _, end in mine)
    busy = sum(max(0.0, min(end, SHOWN) - start) for mine in spans for start, end in mine)
    return done, max(0.0, 1 - busy / (SHOWN * len(spans)))


def _draw_time(axes: Axes, spans: Spans, pull: float) -> None:
    boxes: dict[str, list] = {WAITS: [], PULLS: [], COMPUTES: []}
    for j, mine in enumerate(spans):
        boxes[WAITS].append(_box(j, 0.0, SHOWN))
        for start, end in mine:
            if start < SHOWN:
                boxes[PULLS].append(_box(j, start, min(start + pull, SHOWN)))
                boxes[COMPUTES].append(_box(j, min(start + pull, SHOWN), min(max(end - 0.08, start + pull), SHOWN)))
    for colour, corners in boxes.items():
        axes.add_collection(PolyCollection(corners, facecolors=colour, linewidths=0))
    axes.set(xlim=(0, SHOWN), ylim=(WORKERS - 0.5, -0.5), xlabel="time, s", ylabel="worker")
    style.ticks(axes.yaxis, range(WORKERS), [str(j) for j in range(WORKERS)])
    named = (("computes", COMPUTES), ("pulls", PULLS), ("waits", WAITS))
    marks = [axes.plot([], [], "s", color=colour, label=what, markersize=9)[0] for what, colour in named]
    axes.legend(handles=marks, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, handletextpad=0.1)


def _box(j: int, start: float, end: float) -> tuple:
    return ((start, j - 0.38), (end, j - 0.38), (end, j + 0.38), (start, j + 0.38))


def _draw_loss(axes: Axes, state: dict, setting: tuple) -> None:
    colours = {0: palette.tint(style.VERMILLION, 0.5), math.inf: palette.tint(style.GREEN, 0.6), state["s"]: style.BLUE}
    for s, colour in colours.items():
        _, times, losses = run(s, *setting)
        x = times if state["over"] == "time" else np.arange(len(times))
        axes.plot(x, np.log10(losses), color=colour, label=f"s = {label(s)}", linewidth=2.4 if s == state["s"] else 1.4)
    axes.axhline(np.log10(TARGET), color=style.GREY, linewidth=1, linestyle=":")
    end, unit = (SHOWN, "time, s") if state["over"] == "time" else (80, "updates of the server")
    axes.set(xlim=(0, end), ylim=(-2, 0.3), xlabel=unit, ylabel="loss / initial loss")
    style.ticks(axes.yaxis, (-2, -1, 0), ("1 %", "10 %", "100 %"))
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
