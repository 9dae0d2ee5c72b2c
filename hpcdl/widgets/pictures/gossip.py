"""Gossip round by round: what each rank has, and how fast the distance from the mean shrinks, by topology.

The distance shrinks in each round to at most 1 - gap of what it was, `gap` being the spectral gap of the round's
matrix (see `hpcdl.consistency.gossip`).
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from hpcdl.consistency.gossip import TOPOLOGIES, Edges, mixing, shrinks
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import choice, player, slider
from hpcdl.widgets.kit.explorable import Explorable

ROUNDS = 40
MESSAGES = 60  # of the busiest rank, that are shown
CLOSE = 0.01  # of the distance at the start: as good as the mean
DECADES = (0, -1, -2, -3)
COLOURS = dict(zip(TOPOLOGIES, (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE), strict=True))


def explorable() -> Explorable:
    """A player for the rounds, who sends to whom, how many ranks, and the axis of the distance."""
    controls = {
        "round": player("round", 3, 0, ROUNDS, 250),
        "topology": choice("topology", [(name, name) for name in TOPOLOGIES], "ring"),
        "p": slider("ranks p", 16, 4, 32),
        "over": choice("over", [("rounds", "rounds"), ("messages of the busiest rank", "messages")], "rounds"),
    }
    return Explorable(draw, controls, (9.6, 4.4), layout=[["network", "distance"]], width_ratios=[1, 1.15])


def start(p: int) -> np.ndarray:
    """Return the slowest start: one half of the ring has 1, the other half 0."""
    return (np.arange(p) < p // 2).astype(float)


@lru_cache(maxsize=64)
def run(topology: str, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """After 0 to `ROUNDS` rounds: each rank's value, the distance from the mean, and messages of the busiest rank."""
    values, sent = [start(p)], [0]
    for number in range(ROUNDS):
        edges = TOPOLOGIES[topology](p, number)
        values.append(mixing(p, edges) @ values[-1])
        sent.append(sent[-1] + busiest(edges))
    far = np.array([np.linalg.norm(x - x.mean()) for x in values])
    return np.array(values), far / far[0], np.array(sent)


def busiest(edges: Edges) -> int:
    """How many messages the rank with the most neighbours sends in a round."""
    return int(np.bincount(np.array(edges).reshape(-1)).max())


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    """The ranks after a round at the left, the distances of all topologies at the right."""
    topology, p, number = state["topology"], state["p"], state["round"]
    values, far, sent = run(topology, p)
    edges = TOPOLOGIES[topology](p, number)
    _draw_network(axes["network"], topology, values[number], edges)
    _draw_distance(axes["distance"], state)
    name, factor = topology[0].upper() + topology[1:], shrinks(topology, p)
    promise = "on average" if topology == "random peers" else "at most"
    left = f"After {ROUNDS} rounds {100 * far[-1]:.0f} % is left."
    if len(close := np.flatnonzero(far <= CLOSE)):
        left = f"{100 * CLOSE:.0f} % is left after {close[0]} rounds: {sent[close[0]]} messages of the busiest rank."
    return f"{name}: a round leaves {promise} {100 * factor:.1f} % of the distance (gap {1 - factor:.3f}). {left}"


def places(topology: str, p: int) -> np.ndarray:
    """(p, 2), clockwise from the top; the hub of a wheel is in the middle."""
    around = p - (topology == "wheel")
    angle = 2 * np.pi * np.arange(around) / around
    circle = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return np.concatenate([np.zeros((p - around, 2)), circle])


def _draw_network(axes: Axes, topology: str, x: np.ndarray, edges: Edges) -> None:
    xy = places(topology, len(x))
    size = 420 if len(x) <= 16 else 200
    axes.add_collection(LineCollection([xy[list(edge)] for edge in edges], colors=style.FAINT, linewidths=1.2))
    axes.scatter(xy[:, 0], xy[:, 1], s=size, facecolors=style.CARD, edgecolors=style.GREY, linewidths=1.2, zorder=3)
    near = np.abs(x - x.mean()) <= CLOSE
    axes.scatter(xy[:, 0], xy[:, 1], s=size * x, color=[style.GREEN if it else style.SKY for it in near], zorder=4)
    axes.set(xlim=(-1.25, 1.25), ylim=(-1.4, 1.2))
    caption = f"filled: what a rank has; green: within {100 * CLOSE:.0f} % of the mean"
    axes.text(0, -1.33, caption, ha="center", color=style.GREY, fontsize=10)
    for axis in (axes.xaxis, axes.yaxis):
        style.ticks(axis, [], [])
    axes.spines[:].set_visible(False)
    axes.set_title("Who sends to whom in the next round")


def _draw_distance(axes: Axes, state: dict) -> None:
    by_rounds = state["over"] == "rounds"
    for name, colour in COLOURS.items():
        _, far, sent = run(name, state["p"])
        across, here = np.arange(ROUNDS + 1) if by_rounds else sent, name == state["topology"]
        axes.step(across, _log(far), color=colour, linewidth=2.6 if here else 1.3, label=name, where="post")
        if here:
            bound = shrinks(name, state["p"]) ** np.arange(ROUNDS + 1)
            axes.plot(across, _log(bound), color=colour, linewidth=1.2, linestyle=":")
            axes.plot(across[state["round"]], _log(far[state["round"]]), "o", color=colour, markersize=9)
    end, unit = (ROUNDS, "rounds") if by_rounds else (MESSAGES, "messages that the busiest rank has sent")
    axes.set(xlim=(0, end), ylim=(DECADES[-1], 0.15), xlabel=unit, ylabel="left of the distance")
    style.ticks(axes.yaxis, DECADES, [f"{100 * 10.0**decade:g} %" for decade in DECADES])
    axes.plot([], [], color=style.GREY, linestyle=":", label="by the gap")
    axes.legend(loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=3, columnspacing=1.2, handlelength=1.5)


def _log(share: np.ndarray) -> np.ndarray:
    return np.log10(np.maximum(share, 10.0 ** (DECADES[-1] - 1)))
