"""Ranks on a ring that pass chunks round: the trace of a real all-reduce, and whose numbers each chunk contains."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection, PolyCollection
from matplotlib.patches import Wedge

from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import RankError, TracingComm, simulate
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import player, slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import Alarm
from hpcdl.widgets.kit.words import words
from hpcdl.widgets.pictures.topology import places

FRAMES = 48
MOST = 9  # ranks


def explorable(all_reduce: Callable = ring_all_reduce) -> Explorable:
    """Number of ranks, elements of x, a player for the time; `all_reduce(x, comm)` is played."""
    controls = {
        "frame": player("time", 10, 0, FRAMES, 150),
        "p": slider("ranks p", 5, 1, MOST),
        "n": slider("elements n of x", 20, 1, 36),
    }
    draw_here = partial(draw, all_reduce=all_reduce)
    return Explorable(draw_here, controls, (9.6, 4.7), layout=[["ring", "table"]], width_ratios=[1, 1.1])


class RingReplay(NamedTuple):
    """Messages as (start, end, source, dest, elements), and by rank what it held when: (time, bits of x)."""

    messages: list[tuple]
    held: list[list[tuple[float, np.ndarray]]]
    seconds: float
    bytes_sent: list[int]


class _ChunkWatcher(TracingComm):
    """Looks at x before each message. Rank r begins with the bit 2^r, so a sum tells whose numbers are in it.

    Not while a message is coming in: the machine fills `out` when both sides have posted, before its time has passed.
    """

    def __init__(self, comm, x):
        super().__init__(comm)
        self.x, self.held, self.incoming = x, [], 0

    def look(self):
        if not self.incoming and not (self.held and np.array_equal(self.held[-1][1], self.x.numpy())):
            self.held.append((self.clock(), self.x.numpy().copy()))

    def _isend(self, op, x, dest, tag):
        self.look()
        return super()._isend(op, x, dest, tag)

    def _irecv(self, op, out, source, tag):
        self.look()
        self.incoming += 1
        return super()._irecv(op, out, source, tag)

    def _wait(self, op, *requests):
        super()._wait(op, *requests)
        self.incoming -= sum(request.side == "source" for request in requests)

    def _sendrecv(self, *message):
        self._while_coming_in(super()._sendrecv, message)

    def _sendrecv_add(self, *message):
        self._while_coming_in(super()._sendrecv_add, message)

    def _sendrecv_add_back(self, *message):
        self._while_coming_in(super()._sendrecv_add_back, message)

    def _while_coming_in(self, exchange: Callable, message: tuple) -> None:
        self.look()
        self.incoming += 1
        exchange(*message)
        self.incoming -= 1


@cache
def play(all_reduce: Callable, p: int, n: int) -> RingReplay:
    """Run it once on a machine where a step takes a second, a little more for a longer message."""

    def rank(comm):
        x = torch.full((n,), 1 << comm.rank, dtype=torch.int64)
        watched = _ChunkWatcher(comm, x)
        watched.look()
        all_reduce(x, watched)
        watched.look()
        return watched.held

    try:
        run = simulate(rank, p, alpha=1.0, beta=1e-6)
    except RankError as error:
        if isinstance(error.__cause__, NotImplementedError):  # the picture waits for the student's function
            raise error.__cause__ from None
        raise
    sent = [event for event in run.trace if event.op == "send"]
    messages = [(e.end - 1.0 - 1e-6 * e.nbytes, e.end, e.rank, e.peer, e.nbytes // 8) for e in sent]
    return RingReplay(messages, run.results, run.seconds, run.bytes_sent)


def shares(played: RingReplay, p: int, now: float) -> np.ndarray:
    """By rank and chunk: the share of ranks whose numbers are in it at time `now`; NaN for an empty chunk."""
    table = np.full((p, p), np.nan)
    for rank, held in enumerate(played.held):
        x = next(x for time, x in reversed(held) if time <= now + 1e-9)
        for chunk, part in enumerate(np.array_split(x, p)):
            if len(part):
                table[rank, chunk] = min(int(value).bit_count() for value in part) / p
    return table


def draw(state: dict, axes: dict[str, Axes], all_reduce: Callable = ring_all_reduce) -> str:
    p, n = state["p"], state["n"]
    played = play(all_reduce, p, n)
    now = played.seconds * state["frame"] / FRAMES
    table = shares(played, p, now)
    _ring(axes["ring"], played, table, p, now)
    _table(axes["table"], table, p)
    return sentence(played, table, p, n, now)


def sentence(played: RingReplay, table: np.ndarray, p: int, n: int, now: float) -> str:
    """How far the sum is, and what it costs."""
    if p == 1:
        return "One rank has the sum already: nothing to send."
    full, total = (1 << p) - 1, p * n
    right = sum(int((held[-1][1] == full).sum()) for held in played.held)
    if right < total:
        return Alarm(f"At the end {total - right} of {total} elements are not the sum of all ranks.")
    done = int((table == 1).sum())
    chunks = int(np.isfinite(table).sum())
    steps = sum(1 for _, end, source, *_ in played.messages if source == 0 and end <= now + 1e-9)
    all_steps = sum(1 for message in played.messages if message[2] == 0)
    sent = max(played.bytes_sent) / (8 * n)
    return (
        f"{steps} of {all_steps} steps: {done} of {chunks} chunks are complete (green). In the end each rank has sent "
        f"{sent:.2f} times the size of x, in {all_steps} messages."
    )


def _ring(axes, played: RingReplay, table: np.ndarray, p: int, now: float) -> None:
    xy = places("ring", p, p)
    _messages(axes, played, xy, now)
    radius, turn = min(0.4, 0.75 * np.sin(np.pi / p)) if p > 1 else 0.5, 360 / p
    sectors = [Wedge(place, radius, 90 - turn * (chunk + 1), 90 - turn * chunk) for place in xy for chunk in range(p)]
    colors = [_color(share) for share in table.flat]
    axes.add_collection(PatchCollection(sectors, facecolors=colors, edgecolors=style.CARD, linewidths=1.0, zorder=3))
    around = [place + (radius + 0.12) * place / max(np.hypot(*place), 0.1) for place in xy]
    words(axes, [(*place, str(rank), style.INK) for rank, place in enumerate(around)], 12)
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        style.ticks(axis, [], [])
    axes.set_title("Ranks on a ring, each with its chunks")
    axes.spines[:].set_visible(False)


def _messages(axes, played: RingReplay, xy: np.ndarray, now: float) -> None:
    """Messages under way as dots on their links, the larger the more elements they carry."""
    pairs = sorted({tuple(sorted(message[2:4])) for message in played.messages})
    lines = [xy[list(pair)] for pair in pairs]
    axes.add_collection(LineCollection(lines, colors=style.CONTOUR, linewidths=1.2, zorder=1))
    flying = np.array([m for m in played.messages if m[0] <= now < m[1]]).reshape(-1, 5)
    if len(flying):
        start, end = xy[flying[:, 2].astype(int)], xy[flying[:, 3].astype(int)]
        done = ((now - flying[:, 0]) / (flying[:, 1] - flying[:, 0]))[:, None]
        head = start + done * (end - start)
        axes.scatter(*head.T, s=30 + 15 * flying[:, 4], color=style.VERMILLION, zorder=4)


def _color(share: float) -> str:
    """Blue, the darker the more ranks' numbers are in it; green with all of them; grey for no elements."""
    if np.isnan(share):
        return style.FAINT
    return style.GREEN if share == 1 else style.shade(0.75 * share)


def _table(axes, table: np.ndarray, p: int) -> None:
    """Rank by chunk: how many ranks' numbers are in it."""
    cells = [(rank, chunk, table[rank, chunk]) for rank in range(p) for chunk in range(p)]
    corner = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
    squares = [corner + np.array([chunk, rank]) for rank, chunk, _ in cells]
    colors = [_color(share) for *_, share in cells]
    axes.add_collection(PolyCollection(squares, facecolors=colors, edgecolors=style.CARD, linewidths=2))
    numbers = [
        (chunk, rank, str(round(share * p)), style.CARD if share > 0.4 else style.INK)
        for rank, chunk, share in cells
        if share == share
    ]
    words(axes, numbers, 12)
    axes.set(xlim=(-0.5, p - 0.5), ylim=(p - 0.5, -0.5), xlabel="chunk of x", ylabel="rank")
    for axis in (axes.xaxis, axes.yaxis):
        style.ticks(axis, range(p), [str(i) for i in range(p)])
    axes.grid(False)
    axes.set_title("How many ranks' numbers are in it")
