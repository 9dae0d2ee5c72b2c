"""One iteration of data-parallel training as a timeline: forward, backward and bucket messages of each rank."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from hpcdl.comm import RankError, simulate
from hpcdl.cost import collectives, scaling
from hpcdl.nn.awkward import Deep, takes_time
from hpcdl.nn.networks import NETWORKS
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import checkbox, choice, slider, stops
from hpcdl.widgets.kit.explorable import Explorable

FORWARD, BACKWARD = 0.060, 0.120  # seconds for a rank's images: ResNet-50 as in Goyal et al. 2017, on a P100
ALPHA = 100e-6  # seconds per message: Ethernet
MEGABYTES = [0.1, 0.25, 0.5, 1, 2, 5, 10, 25, 50, 100, 250, 600]
GIGABITS = [1, 10, 25, 50, 100, 200]
COLORS = {
    "forward": style.SKY,
    "backward": style.BLUE,
    "weights": style.PURPLE,
    "wait": style.CONTOUR,
    "update": style.GREEN,
    "message": style.ORANGE,
}
DEPTH, LAYER_BYTES = 12, 64  # of `Deep`


class Bar(NamedTuple):
    """Something that a rank does from `start` to `end`, seconds; `kind` is a key of COLORS."""

    rank: int
    kind: str
    start: float
    end: float


def explorable(wrap: Callable | None = None) -> Explorable:
    """The cost model's iteration; with `wrap`, a class as `DistributedDataParallel`, what its hooks really send."""
    if wrap is not None:
        controls = {"layers": slider("layers in a bucket", 2, 1, DEPTH), "p": slider("ranks p", 2, 2, 4)}
        return Explorable(partial(draw_traced, wrap=wrap), controls, (9.6, 4.2))
    networks = [("ResNet-50", "resnet50"), ("VGG-16", "vgg16"), ("AlexNet", "alexnet")]
    controls = {
        "megabytes": stops("bucket, MB", [(f"{size:g}", size) for size in MEGABYTES], 25),
        "gigabits": stops("network, Gb/s", [(f"{speed}", speed) for speed in GIGABITS], 10),
        "p": slider("ranks p", 8, 1, 8),
        "slow": slider("last rank slower by", 1.0, 1.0, 2.0, 0.1, ".1f"),
        "overlap": checkbox("overlap", True),
        "network": choice("model", networks, "resnet50"),
    }
    return Explorable(draw_modelled, controls, (9.6, 4.4))


# The cost model's iteration


def modelled(network: str, p: int, megabytes: float, gigabits: float, overlap: bool, slow: float):
    """Bars of every rank, the number of buckets, seconds of messages; the last rank computes `slow` times as long."""
    ready = scaling.gradients(NETWORKS[network](), BACKWARD)
    buckets = scaling.capped(ready, cap=megabytes * 2**20)
    factors = [1.0] * (p - 1) + [slow if p > 1 else 1.0]
    bars, free, messages = [], 0.0, 0.0
    for rank, factor in enumerate(factors):
        bars.append(Bar(rank, "forward", 0.0, FORWARD * factor))
        bars.append(Bar(rank, "backward", FORWARD * factor, (FORWARD + BACKWARD) * factor))
    for bucket in buckets if p > 1 else ():
        mine = [(FORWARD + (bucket.ready if overlap else BACKWARD)) * factor for factor in factors]
        start = max(free, *mine)
        free = start + collectives.ring(p, bucket.nbytes, ALPHA, 8e-9 / gigabits)
        messages += free - start
        for rank in range(p):
            bars += [Bar(rank, "wait", mine[rank], start), Bar(rank, "message", start, free)]
    return bars, len(buckets), messages


def draw_modelled(state: dict, axes: Axes) -> str:
    p, overlap = state["p"], state["overlap"]
    settings = (state[name] for name in ("network", "p", "megabytes", "gigabits", "overlap", "slow"))
    bars, count, messages = modelled(*settings)
    end, computing = max(bar.end for bar in bars), max(bar.end for bar in bars if bar.kind == "backward")
    draw_bars(axes, bars, p, 1e3, "ms", end)
    axes.set_title(f"One iteration, {count} bucket{'s' * (count > 1)}")
    if p == 1:
        return f"One rank computes {1e3 * end:.0f} ms and sends nothing."
    hidden = max(0.0, 1 - (end - computing) / messages)
    said = f"{100 * hidden:.0f} % of them behind the backward pass" if overlap else "none of them hidden"
    return (
        f"{1e3 * end:.0f} ms: computing {1e3 * computing:.0f} ms, messages {1e3 * messages:.0f} ms, {said}. "
        f"Efficiency {100 * (FORWARD + BACKWARD) / end:.0f} %."
    )


# What a student's class really sends


@cache
def traced(wrap: Callable, p: int, layers: int) -> tuple[list[Bar], float]:
    """Bars of one step of `Deep` on the simulated machine, a second of backward pass a layer; seconds of the step."""

    def rank(comm):
        torch.manual_seed(0)
        model = takes_time(Deep(), comm, 1.0)
        ddp = wrap(model, comm, layers * LAYER_BYTES)
        comm.barrier()
        begin = comm.clock()
        ddp(torch.ones(2, 4)).mean().backward()
        ddp.synchronize()
        return begin, comm.clock()

    alpha, beta = 0.15, 0.004
    try:
        run = simulate(rank, p, alpha=alpha, beta=beta)
    except RankError as error:
        if isinstance(error.__cause__, NotImplementedError):  # the picture waits for the student's class
            raise error.__cause__ from None
        raise
    begin = min(start for start, _ in run.results)
    bars = []
    for event in run.trace:
        if event.op == "compute":
            bars.append(Bar(event.rank, "backward", event.start - begin, event.end - begin))
        elif event.op == "send" and event.start >= begin:
            bars.append(Bar(event.rank, "message", event.end - begin - alpha - event.nbytes * beta, event.end - begin))
    return bars, max(end for _, end in run.results) - begin


def draw_traced(state: dict, axes: Axes, wrap: Callable) -> str:
    bars, seconds = traced(wrap, state["p"], state["layers"])
    draw_bars(axes, bars, state["p"], 1.0, "s (virtual)", seconds)
    count = -(-DEPTH // state["layers"])
    axes.set_title(f"Your class at work: {DEPTH} layers in {count} bucket{'s' * (count > 1)}")
    sent = [bar for bar in bars if bar.kind == "message" and bar.rank == 0]
    if not sent:
        return style.Alarm(f"Rank 0 sends nothing, in {seconds:.1f} s.")
    first, total = min(bar.start for bar in sent), sum(bar.end - bar.start for bar in sent)
    return (
        f"{seconds:.1f} s for {DEPTH} s of backward pass. Rank 0's first message leaves at {first:.1f} s; its messages "
        f"take {total:.1f} s; {max(0.0, DEPTH + total - seconds):.1f} s of them are hidden."
    )


# The bars


def draw_bars(axes: Axes, bars: list[Bar], ranks: int, unit: float, label: str, end: float) -> None:
    """A lane per rank: computing above, messages below. `unit` and `label` are those of the time axis."""
    computing = [bar for bar in bars if bar.kind not in ("wait", "message")]
    others = [bar for bar in bars if bar not in computing and bar.end > bar.start]
    _boxes(axes, [(bar, bar.rank - 0.38, bar.rank - 0.02) for bar in computing], unit, end)
    _boxes(axes, [(bar, bar.rank + 0.02, bar.rank + 0.34) for bar in others if bar.kind == "message"], unit, end)
    _boxes(axes, [(bar, bar.rank + 0.12, bar.rank + 0.24) for bar in others if bar.kind == "wait"], unit, end)
    axes.set(xlim=(0, 1.01 * unit * end), ylim=(ranks - 0.5, -0.5), xlabel=f"time, {label}", ylabel="rank")
    style.ticks(axes.yaxis, range(ranks), [str(rank) for rank in range(ranks)])
    kinds = [kind for kind in COLORS if any(bar.kind == kind and bar.end > bar.start for bar in bars)]
    marks = [axes.plot([], [], "s", color=COLORS[kind], label=kind, markersize=9)[0] for kind in kinds]
    axes.legend(handles=marks, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(marks), handletextpad=0.1)


def _boxes(axes, rows: list[tuple], unit: float, end: float) -> None:
    """Rectangles a little shorter than their time, so that one after another can be told from one long one."""
    gap = 0.0015 * end
    corners, colors = [], []
    for bar, top, bottom in rows:
        left, right = unit * bar.start, unit * max(bar.end - gap, bar.start + 0.3 * (bar.end - bar.start))
        corners.append([(left, top), (right, top), (right, bottom), (left, bottom)])
        colors.append(COLORS[bar.kind])
    order = {"wait": 1, "message": 2}
    zorder = order.get(rows[0][0].kind, 2) if rows else 1
    axes.add_collection(PolyCollection(corners, facecolors=colors, linewidths=0, zorder=zorder))
