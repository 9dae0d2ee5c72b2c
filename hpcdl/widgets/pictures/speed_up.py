"""Where did the speed-up go? From p times as fast to what is left, leak by leak; efficiencies that were published.

All seconds are `hpcdl.cost.scaling`'s, with the assumptions of `hpcdl.cost.published`. The batch's price: to get as far
takes 1 + B / B_crit times as many samples with a batch of B (McCandlish et al. 2018, "An empirical model of large-batch
training"). Sources: Goyal et al. 2017; Horovod's benchmark page; the lecture's case study (Jia et al. 2018),
whose second dot is 99.2 % with 1,024 GPUs, times 8.7 / 6.6 minutes, on twice the GPUs: see the audit in lab `scaling`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from matplotlib.axes import Axes

from hpcdl.cost import scaling
from hpcdl.cost.machines import GIGABIT, RDMA
from hpcdl.cost.published.data_parallel import IMAGES_PER_SECOND
from hpcdl.cost.published.row import USABLE
from hpcdl.cost.topology import Link, Nodes
from hpcdl.nn import networks
from hpcdl.widgets.kit import palette, style, units
from hpcdl.widgets.kit.controls import choice, slider, stops
from hpcdl.widgets.kit.explorable import Explorable

BATCH = 64  # images on each GPU
RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
CURVE = (1, 16, 128, 512, 1024, 2048)
INFINITE = float("inf")


class NetworkSpeed(NamedTuple):
    """Its layers, and images per second on one P100."""

    layers: Callable
    rate: float


class Published(NamedTuple):
    """An efficiency in percent that was printed."""

    source: str
    network: str
    p: int
    efficiency: float


NETWORKS = {
    "ResNet-50": NetworkSpeed(networks.resnet50, 32 / 0.180),  # Goyal et al. 2017: 180 ms for 32 images
    "Inception V3": NetworkSpeed(networks.inception_v3, IMAGES_PER_SECOND["Inception V3"]),
    "VGG-16": NetworkSpeed(networks.vgg16, IMAGES_PER_SECOND["VGG-16"]),
}
BUCKETS: dict[str, Callable] = {
    "the best there are": scaling.merged,
    "25 MB (PyTorch)": scaling.capped,
    "all that is ready (Horovod)": scaling.fused,
    "layer by layer": scaling.layerwise,
    "one, after the backward pass": scaling.single,
}
PRECISIONS = {"32 bits": 4, "16 bits": 2}
DOTS = (
    Published("Goyal", "ResNet-50", 256, 90.0),
    Published("Horovod", "Inception V3", 512, 90.0),
    Published("Horovod", "VGG-16", 512, 68.0),
    Published("lecture", "ResNet-50", 1024, 99.2),
    Published("lecture", "ResNet-50", 2048, 99.2 * 8.7 / 6.6 / 2),
)
BESIDE = {512: ((6, 1), "left"), 2048: ((4, -17), "right")}  # where a dot's name is, by its GPUs
LEAKS = ("input", "messages", "stragglers", "the batch")
COLORS = dict(zip(LEAKS, (style.GREEN, style.ORANGE, style.SKY, style.PURPLE), strict=True))


def explorable() -> Explorable:
    """How many ranks, what they train over which links, and what feeds them."""
    rates = [*((f"{rate:,}", float(rate)) for rate in (10_000, 30_000, 100_000, 300_000)), ("no limit", INFINITE)]
    critical = [*((f"{batch:,}", float(batch)) for batch in (2_000, 8_000, 32_000, 128_000)), ("no limit", INFINITE)]
    controls = {
        "p": stops("GPUs p", [(f"{p:,}", p) for p in RANKS], 1024),
        "network": choice("model", [(name, name) for name in NETWORKS], "ResNet-50"),
        "gigabits": stops("link, Gb/s", [(f"{speed}", speed) for speed in (10, 25, 50, 100, 200, 400)], 25),
        "buckets": choice("buckets", [(name, name) for name in BUCKETS], "25 MB (PyTorch)"),
        "precision": choice("gradients sent in", [(name, name) for name in PRECISIONS], "32 bits"),
        "input": stops("input, images/s", rates, 300_000.0),
        "spread": slider("step times spread, %", 5, 0, 20),
        "critical": stops("critical batch", critical, 32_000.0),
    }
    return Explorable(draw, controls, (9.6, 4.8), layout=[["left", "curve"]], width_ratios=[1.15, 1])


@lru_cache(maxsize=4096)
def seconds(network: str, p: int, gigabits: int, buckets: str, itemsize: int, spread: float) -> scaling.Iteration:
    """One iteration of BATCH images on each of p GPUs, 8 to a server; its stragglers' and its messages' parts."""
    compute, late = BATCH / NETWORKS[network].rate, scaling.slowest(p, spread)
    ready = scaling.gradients(NETWORKS[network].layers(), 2 / 3 * compute * late, itemsize)
    link = Link(RDMA, 1 / (gigabits * GIGABIT)).reaching(USABLE)
    all_reduce = _affine(Nodes(8, Link(0.0, 0.0), link, pipelined=True).all_reduce(p))
    exposed = scaling.iteration(0.0, BUCKETS[buckets](ready, all_reduce), all_reduce).exposed if p > 1 else 0.0
    return scaling.Iteration(compute / 3, 2 / 3 * compute, exposed, 0.0, stragglers=(late - 1) * compute)


def _affine(all_reduce: Callable) -> Callable:
    """The same for messages of many bytes, and fast: pictures ask thousands of times for a + b n."""
    size = 2**40
    alpha = all_reduce(0)
    beta = (all_reduce(size) - alpha) / size
    return lambda nbytes: alpha + beta * nbytes


def remaining(state: Mapping, p: int) -> list[float]:
    """The speed-up on p GPUs: ideal, and after each of LEAKS in turn; in the end, in progress made per second."""
    spread, itemsize = state["spread"] / 100, PRECISIONS[state["precision"]]
    parts = seconds(state["network"], p, state["gigabits"], state["buckets"], itemsize, spread)
    compute, loading = parts.compute, BATCH * p / state["input"]
    times = (
        compute,
        max(compute, loading),
        max(compute + parts.exposed, loading),
        max(compute + parts.exposed + parts.stragglers, loading),
    )
    price = (1 + BATCH * p / state["critical"]) / (1 + BATCH / state["critical"])
    left = [p * compute / time for time in times]
    return [*left, left[-1] / price]


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    p, left = state["p"], remaining(state, state["p"])
    _draw_waterfall(axes["left"], p, left)
    _draw_curve(axes["curve"], state)
    losses = {leak: before - after for leak, before, after in zip(LEAKS, left, left[1:], strict=False)}
    worst = max(losses, key=lambda leak: losses[leak])
    said = (
        f"Most goes to {worst}: {units.number(losses[worst])} of it." if losses[worst] > 0.005 * p else "Hardly a leak."
    )
    return (
        f"{p:,} GPU{'s' * (p > 1)}, a batch of {BATCH * p:,}: {units.number(left[-2])} times the images per second "
        f"of one ({100 * left[-2] / p:.0f} %), {units.number(left[-1])} times as fast to the same loss. {said}"
    )


def _draw_waterfall(axes: Axes, p: int, left: list[float]) -> None:
    names = ("ideal", "input", "messages", "stragglers", "batch", "left")
    for place, leak in enumerate(LEAKS, start=1):
        before, after = left[place - 1], left[place]
        axes.bar(place, before - after, bottom=after, width=0.7, color=COLORS[leak])
        axes.plot((place - 0.65, place + 0.35), (before, before), color=style.GREY, linewidth=0.8)
        share = f"−{100 * (before - after) / p:.0f} %"
        axes.text(place, before + 0.012 * p, share if share != "−0 %" else "0", ha="center", va="bottom", fontsize=10)
    for place, height in ((0, left[0]), (len(names) - 1, left[-1])):
        axes.bar(place, height, width=0.7, color=style.BLUE)
        axes.text(place, height + 0.012 * p, f"{height:,.0f}", ha="center", va="bottom", fontsize=10)
    axes.set(
        ylim=(0, 1.12 * p), xlim=(-0.5, len(names) - 0.5), ylabel="times one GPU", title="From ideal to what is left"
    )
    style.ticks(axes.xaxis, range(len(names)), names)
    axes.tick_params(axis="x", labelsize=8.5)


def _draw_curve(axes: Axes, state: Mapping) -> None:
    rows = [remaining(state, p) for p in CURVE]
    curves = ((3, style.BLUE, "images per second"), (4, style.PURPLE, "progress per second"))
    for index, color, label in curves:
        axes.plot(CURVE, [100 * row[index] / p for row, p in zip(rows, CURVE, strict=True)], color=color, label=label)
    for dot in DOTS:
        mine = dot.network == state["network"]
        color = style.VERMILLION if mine else palette.tint(style.VERMILLION, 0.35)
        axes.plot(dot.p, dot.efficiency, "o", color=color, markersize=7 if mine else 5)
        beside, side = BESIDE.get(dot.p, ((-6, 4), "right"))
        place, color = (dot.p, dot.efficiency), style.INK if mine else style.GREY
        text = axes.annotate(dot.source, place, beside, textcoords="offset points", ha=side, fontsize=9, color=color)
        text.set_bbox(style.BEHIND)
    axes.axvline(state["p"], ymin=0.22, color=style.GREY, linewidth=0.8, linestyle=":")  # above the legend
    axes.set_xscale("log", base=2)
    axes.set(
        xlim=(0.9, 2600), ylim=(0, 112), xlabel="GPUs p", ylabel="efficiency, %", title="Printed (dots) and modelled"
    )
    style.ticks(axes.xaxis, (1, 8, 64, 512, 2048), ("1", "8", "64", "512", "2,048"))
    axes.legend(loc="lower left", fontsize=10)
