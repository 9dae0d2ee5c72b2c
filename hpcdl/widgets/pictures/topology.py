"""An all-reduce message by message: the trace of the real algorithm on the simulated machine, played in slow motion."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patheffects import withStroke

from hpcdl.collectives import ALL_REDUCE
from hpcdl.comm import RankError, TracingComm, simulate
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import choice, player, slider, stops
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import Alarm

ALPHA, BETA = 1e-5, 1e-9  # 10 microseconds a message, 1 GB/s
FRAMES = 60
NAMES = {
    "naive": "star (naive)",
    "parameter_server": "parameter server",
    "tree": "tree",
    "ring": "ring",
    "recursive_doubling": "recursive doubling",
    "rabenseifner": "Rabenseifner",
    "hierarchical": "hierarchical",
}
SIZES = [("100 B", 100), ("1 KB", 1_000), ("10 KB", 10_000), ("100 KB", 100_000), ("1 MB", 1_000_000)]


def explorable(mine: Callable | None = None) -> Explorable:
    """Number of ranks, size of x, a player for the time; which algorithm, and its servers or ranks per node.

    With `mine`, an all-reduce `f(x, comm)`, that one is played.
    """
    controls = {
        "frame": player("time", 12, 0, FRAMES, 120),
        "p": slider("ranks p", 8, 1, 16),
        "nbytes": stops("size of x", SIZES, 10_000),
    }
    if mine is None:
        controls["algorithm"] = choice("algorithm", [(label, name) for name, label in NAMES.items()], "ring")
        controls["k"] = slider("k: servers, ranks per node", 4, 1, 8)
    draw_here = partial(draw, mine=mine)
    return Explorable(draw_here, controls, (9.6, 4.6), layout=[["network", "time"]], width_ratios=[1, 1.15])


class Replay(NamedTuple):
    """Transfers in rows (start, end, source, dest, share of x), and by rank (time, share of the sum it holds)."""

    transfers: np.ndarray
    levels: list[list[tuple[float, float]]]
    seconds: float


class _SumWatcher(TracingComm):
    """Looks at x after each operation: of ones, so that its mean tells how much of the sum this rank has."""

    def __init__(self, comm, x):
        super().__init__(comm)
        self.x, self.levels = x, [(0.0, 1 / comm.size)]

    def _wait(self, op, *requests):
        super()._wait(op, *requests)
        self._look()

    def _sendrecv(self, *message):
        super()._sendrecv(*message)
        self._look()

    def _sendrecv_add(self, *message):
        super()._sendrecv_add(*message)
        self._look()

    def _sendrecv_add_back(self, *message):
        super()._sendrecv_add_back(*message)
        self._look()

    def accumulate(self, out, x, weight=1.0):
        super().accumulate(out, x, weight)
        self._look()

    def _look(self):
        self.levels.append((self.clock(), self.x.mean().item() / self.size))


def elements(p: int) -> int:
    """Few enough to be quick, and every piece is whole: also of servers and nodes."""
    return math.lcm(p, 1 << (p.bit_length() - 1), 840)


@cache
def play(f: Callable, p: int, nbytes: int, options: tuple = ()) -> Replay:
    """Run `f(x, comm, **options)` once; few elements stand for `nbytes`, each at its share of the cost."""
    n = elements(p)
    beta = BETA * nbytes / (4 * n)

    def rank(comm):
        x = torch.ones(n)
        watched = _SumWatcher(comm, x)
        f(x, watched, **dict(options))
        watched._look()
        return watched.levels

    run = _simulate(rank, p, alpha=ALPHA, beta=beta)
    sent = [event for event in run.trace if event.op == "send"]
    rows = [(e.end - ALPHA - e.nbytes * beta, e.end, e.rank, e.peer, e.nbytes / (4 * n)) for e in sent]
    return Replay(np.array(rows).reshape(-1, 5), run.results, run.seconds)


@cache
def terms(f: Callable, p: int, options: tuple = ()) -> tuple[float, float]:
    """The longest path: how many messages, and how many times the size of x."""
    n = elements(p)

    def rank(comm):
        f(torch.ones(n), comm, **dict(options))

    return _simulate(rank, p, alpha=1.0).seconds, _simulate(rank, p, beta=1.0).seconds / (4 * n)


def _simulate(rank, p, **machine):
    try:
        return simulate(rank, p, **machine)
    except RankError as error:
        if isinstance(error.__cause__, NotImplementedError):  # the picture waits for the student's function
            raise error.__cause__ from None
        raise


def draw(state: dict, axes: dict[str, Axes], mine: Callable | None = None) -> str:
    algorithm, p, nbytes, k = state.get("algorithm", ""), state["p"], state["nbytes"], state.get("k", 1)
    f, possible = mine or ALL_REDUCE[algorithm], min(k, p) if algorithm == "parameter_server" else k
    known: dict[str, tuple] = {"parameter_server": (("servers", possible),), "hierarchical": (("per_node", k),)}
    options = known.get(algorithm, ())
    played = play(f, p, nbytes, options)
    now = played.seconds * state["frame"] / FRAMES
    title = NAMES.get(algorithm, "your function")
    _network(axes["network"], played, places(algorithm, p, possible), now, title)
    _timeline(axes["time"], played, p, now)
    if possible < k:
        return Alarm(f"Each server is one of the ranks: of p = {p} ranks no {k} can be servers. Here are {p}.")
    return verdict(played, p, nbytes, *terms(f, p, options))


def verdict(played: Replay, p: int, nbytes: int, messages: float, volume: float) -> str:
    """What the run consists of, in a sentence."""
    if not len(played.transfers):
        return "One rank has the sum already: nothing is sent." if p == 1 else Alarm("No rank sends anything.")
    if any(levels[-1][1] < 1 - 1e-6 for levels in played.levels):
        return Alarm("At the end some rank does not hold the whole sum: it is not green.")
    most = max(np.bincount(played.transfers[:, 2].astype(int), weights=played.transfers[:, 4], minlength=p))
    path = f"{messages:.0f} in a row on the longest path: {messages:.0f}α + {volume:.3g}nβ"
    time = f"{1e6 * messages * ALPHA:.0f} + {_short(1e6 * volume * nbytes * BETA)} µs"
    return f"{len(played.transfers)} messages, {path} = {time}. One rank sends up to {most:.3g}n."


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


# Where the ranks stand


def places(algorithm: str, p: int, k: int) -> np.ndarray:
    """The places of the ranks, `(p, 2)`, within [-1, 1]."""
    if algorithm == "tree":
        return _tree_places(p)
    if algorithm == "hierarchical" and p > k > 1:
        nodes, inside = _circle(-(-p // k), 0.7), _circle(k, 0.26)
        return np.array([nodes[rank // k] + inside[rank % k] for rank in range(p)])
    servers = {"naive": 1, "parameter_server": k}.get(algorithm, p)
    if servers < p:
        return np.concatenate([_circle(servers, 0.0 if servers == 1 else 0.38), _circle(p - servers, 0.95)])
    return _circle(p, 0.9)


def _circle(n: int, radius: float) -> np.ndarray:
    """`n` places clockwise from the top."""
    angle = 2 * np.pi * np.arange(n) / n
    return radius * np.stack([np.sin(angle), np.cos(angle)], axis=1)


def _tree_places(p: int) -> np.ndarray:
    """Rank r's parent is r without its highest bit; leaves stand side by side, parents over their children."""
    across, free = np.zeros(p), iter(range(p))

    def place(rank):
        children = [rank + (1 << bit) for bit in range(rank.bit_length(), p.bit_length()) if rank + (1 << bit) < p]
        for child in children:
            place(child)
        across[rank] = np.mean(across[children]) if children else next(free)

    place(0)
    depth = np.array([rank.bit_count() for rank in range(p)])
    return np.stack([_spread(across), 0.9 - 1.8 * depth / max(depth.max(), 1)], axis=1)


def _spread(values: np.ndarray) -> np.ndarray:
    width = values.max() - values.min()
    return 1.9 * (values - values.min()) / width - 0.95 if width else np.zeros_like(values)


# The picture


def _network(axes, played: Replay, xy, now: float, title: str) -> None:
    moves = played.transfers
    pairs = sorted({(int(min(a, b)), int(max(a, b))) for a, b in moves[:, 2:4]})
    axes.add_collection(LineCollection([xy[list(pair)] for pair in pairs], colors=style.FAINT, linewidths=1, zorder=1))
    flying = moves[(moves[:, 0] <= now) & (now < moves[:, 1])]
    if len(flying):
        start, end = xy[flying[:, 2].astype(int)], xy[flying[:, 3].astype(int)]
        done = ((now - flying[:, 0]) / (flying[:, 1] - flying[:, 0]))[:, None]
        head = start + done * (end - start)
        axes.add_collection(
            LineCollection(list(np.stack([start, head], 1)), colors=style.VERMILLION, linewidths=2, zorder=2)
        )
        axes.scatter(*head.T, s=15 + 60 * flying[:, 4], color=style.VERMILLION, zorder=4)
    level = np.array([next(share for time, share in reversed(rank) if time <= now + 1e-15) for rank in played.levels])
    axes.scatter(*xy.T, s=520, facecolors=style.CARD, edgecolors=style.GREY, linewidths=1.2, zorder=3)
    colors = [style.GREEN if share > 1 - 1e-6 else style.SKY for share in level]
    axes.scatter(*xy.T, s=520 * level, color=colors, alpha=0.75, zorder=3)
    for rank, place in enumerate(xy):
        halo = [withStroke(linewidth=3, foreground=style.CARD)]  # a message may be under it
        axes.text(*place, str(rank), ha="center", va="center", fontsize=10, zorder=5, path_effects=halo)
    axes.text(
        0, -1.33, "blue: the share of the sum a rank holds; green: all", ha="center", color=style.GREY, fontsize=10
    )
    axes.set(xlim=(-1.4, 1.4), ylim=(-1.36, 1.16))
    for axis in (axes.xaxis, axes.yaxis):
        style.ticks(axis, [], [])
    axes.set_title(title[0].upper() + title[1:])
    axes.spines[:].set_visible(False)


def _timeline(axes, played: Replay, p: int, now: float) -> None:
    moves, unit, scale = played.transfers, *(("ms", 1e3) if played.seconds >= 1e-3 else ("µs", 1e6))
    rows = [[(scale * start, rank), (scale * end, rank)] for start, end, rank in moves[:, :3]]
    colors = np.where(moves[:, 0] > now, style.FAINT, np.where(moves[:, 1] > now, style.VERMILLION, style.BLUE))
    thick = min(14, 150 / p)
    # A little shorter than they are, so that two messages in a row do not look like one long one.
    if rows:
        ends = np.array(rows)
        ends[:, 1, 0] -= 0.006 * scale * played.seconds
        axes.add_collection(LineCollection(list(ends), colors=colors, linewidths=thick, capstyle="butt"))
    axes.axvline(scale * now, color=style.INK, linewidth=1.2)
    axes.set(xlim=(0, 1.02 * scale * played.seconds or 1), ylim=(p - 0.5, -0.5))
    style.ticks(axes.yaxis, range(p), [str(rank) for rank in range(p)])
    axes.set(xlabel=f"time, {unit}", ylabel="rank")
    axes.set_title("What each rank sends")
