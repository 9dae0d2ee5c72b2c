"""Threads write to one vector without locks: which updates are late, and which are lost, by how sparse they are.

An update reads two components, computes, and then loads and stores each of them (Niu et al. 2011, algorithm 1).
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from hpcdl.widgets.kit import palette, style
from hpcdl.widgets.kit.controls import slider, stops
from hpcdl.widgets.kit.explorable import Explorable

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # components of the vector
UPDATES = 8  # of each thread
TOUCHED = 2  # components of an update
THINKS = 4.0  # times as long as an event
RUNS = 24  # that the curve is the mean of
COLOURS = {"lost": style.VERMILLION, "late": style.ORANGE, "clean": style.SKY}
BARS = {fate: palette.tint(colour, 0.55) for fate, colour in COLOURS.items()}  # marks in ink are seen on them


class MemoryAccess(NamedTuple):
    """An access to component `v` by update `k` of a thread."""

    time: float
    thread: int
    k: int
    op: str  # read, load or store
    v: int


def explorable() -> Explorable:
    """The vector's size, and the number of threads."""
    controls = {"n": stops("components n", SIZES, 6), "p": slider("threads p", 4, 1, 6)}
    return Explorable(draw, controls, (9.6, 4.4), layout=[["time", "share"]], width_ratios=[1.5, 1])


@cache
def events(n: int, p: int, seed: int = 0) -> tuple[MemoryAccess, ...]:
    """Return all accesses of `p` threads to `n` components, in the order of their times."""
    chance, found = np.random.default_rng((seed, n, p)), []
    for thread in range(p):
        time = 0.0
        for k in range(UPDATES):
            edge = chance.permutation(n)[:TOUCHED].tolist()
            ops = [("read", v) for v in edge] + [(op, v) for v in edge for op in ("load", "store")]
            for number, (op, v) in enumerate(ops):
                time += chance.uniform(0.5, 1.5) * (THINKS if number == TOUCHED else 1.0)
                found.append(MemoryAccess(time, thread, k, op, v))
    return tuple(sorted(found))


def fates(found: tuple[MemoryAccess, ...]) -> dict[tuple[int, int], str]:
    """Return for each update (thread, k): "lost", "late" or "clean".

    An update is lost if another thread loads a component before the update stores it, and stores it afterwards. An
    update is late if another thread stores a component between its read and its store of that component.
    """
    when = {(e.op, e.thread, e.k, e.v): e.time for e in found}
    fate = {(e.thread, e.k): "clean" for e in found}
    stores = [e for e in found if e.op == "store"]  # in the order of time
    for number, mine in enumerate(stores):
        for other in stores[:number]:
            if other.v != mine.v or other.thread == mine.thread:
                continue
            me = (mine.thread, mine.k)
            if when["load", *me, mine.v] < other.time:
                fate[other.thread, other.k] = "lost"
            if when["read", *me, mine.v] < other.time and fate[me] == "clean":
                fate[me] = "late"
    return fate


@cache
def shares(n: int, p: int) -> dict[str, float]:
    """Return the mean share of updates that are lost, and that are late, over `RUNS` runs."""
    every = [fate for seed in range(RUNS) for fate in fates(events(n, p, seed)).values()]
    return {name: every.count(name) / len(every) for name in COLOURS}


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    """One run at the left, the mean of many by the number of components at the right."""
    n, p = state["n"], state["p"]
    found = events(n, p)
    fate = fates(found)
    _draw_time(axes["time"], found, fate, p)
    _draw_share(axes["share"], n, p)
    count = {name: list(fate.values()).count(name) for name in COLOURS}
    threads = "1 thread" if p == 1 else f"{p} threads"
    return (
        f"{threads} on {n} components: of {len(fate)} updates {count['lost']} are lost in part, "
        f"{count['late']} are late. On average {100 * shares(n, p)['lost']:.1f} % are lost."
    )


def _draw_time(axes: Axes, found: tuple[MemoryAccess, ...], fate: dict, p: int) -> None:
    for (thread, k), kind in fate.items():
        times = [e.time for e in found if (e.thread, e.k) == (thread, k)]
        axes.broken_barh([(times[0], times[-1] - times[0])], (thread - 0.36, 0.72), color=BARS[kind], linewidth=0)
    marks = {"read": "o", "load": "<", "store": ">"}
    for op, mark in marks.items():
        at = [(e.time, e.thread) for e in found if e.op == op]
        axes.plot(*zip(*at, strict=True), mark, color=style.INK, markersize=3.5, label=op)
    axes.set(xlim=(0, 82), ylim=(p - 0.4, -0.6), xlabel="time (events)", ylabel="thread")
    style.ticks(axes.yaxis, list(range(p)), [str(k + 1) for k in range(p)])
    axes.grid(visible=False)
    axes.set_title("Every bar is an update", pad=24)
    axes.legend(loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=3, handlelength=1.0, columnspacing=1.2)


def _draw_share(axes: Axes, n: int, p: int) -> None:
    across = [float(SIZES.index(size)) for size in SIZES]
    for name in ("late", "lost"):
        heights = [100 * shares(size, p)[name] for size in SIZES]
        axes.plot(across, heights, color=COLOURS[name], label=name)
        axes.plot(SIZES.index(n), heights[SIZES.index(n)], "o", color=COLOURS[name], markersize=9)
    axes.set(ylim=(-2, 100), xlabel="components n", ylabel="share of updates, %")
    style.ticks(axes.xaxis, across[::2], [str(size) for size in SIZES[::2]])
    axes.set_title(f"Mean of {RUNS} runs", pad=24)
    axes.legend(loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=2, handlelength=1.3, columnspacing=1.2)
