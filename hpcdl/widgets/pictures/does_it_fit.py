"""Does a training fit into its machines? What each rank holds at every stage of ZeRO, and what is paid for it.

All numbers are `hpcdl.cost`'s. Sources: Rajbhandari et al. 2020, "ZeRO" (stages); Korthikanti et al. 2022, "Reducing
activation recomputation in large transformer models" (activations, and the two largest models); Narayanan et al. 2021,
"Efficient large-scale language model training on GPU clusters using Megatron-LM" (the others).
"""

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.axes import Axes

from hpcdl.cost import collectives, memory
from hpcdl.cost.machines import A100_SUPERPOD
from hpcdl.cost.published.transformers import KORTHIKANTI, MEGATRON_2021
from hpcdl.cost.work import Transformer
from hpcdl.widgets.kit import palette, style, units
from hpcdl.widgets.kit.controls import checkbox, choice, slider, stops
from hpcdl.widgets.kit.explorable import Explorable

LIMIT = A100_SUPERPOD.memory  # bytes of a GPU: the line in the picture
TITLE = 22  # points between a title and its axes: the legend is there


class PrecisionBytes(NamedTuple):
    """Bytes for each parameter, and what activations have more than in 16 bits."""

    optimizer: int
    gradient: int
    weight: int
    activations: int


PRECISIONS = {
    "16 bits, states in float32": PrecisionBytes(12, 2, 2, 1),
    "float32": PrecisionBytes(8, 4, 4, 2),
}
MODELS = {
    f"{name} (Narayanan)": Transformer(layers, hidden, 2048, 51200, heads)
    for name, (heads, hidden, layers, *_) in MEGATRON_2021.items()
} | {f"{name} (Korthikanti)": model for name, (model, *_) in KORTHIKANTI.items()}
RECOMPUTE = {"nothing": "nothing", "the scores (selective)": "selective", "each layer (full)": "full"}
COLORS = {
    "weights": style.BLUE,
    "gradients": style.GREEN,
    "optimizer states": style.ORANGE,
    "activations": style.PURPLE,
}
RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def explorable() -> Explorable:
    """The model, its ranks and its batch, the stage, and what is computed again."""
    controls = {
        "model": choice("parameters", [(name, name) for name in MODELS], "7.5 B (Narayanan)"),
        "stage": slider("ZeRO stage", 0, 0, 3),
        "p": stops("ranks p that share a batch", [(f"{p:,}", p) for p in RANKS], 64),
        "batch": slider("microbatch b", 1, 1, 16),
        "recompute": choice("computed again", list(RECOMPUTE.items()), "nothing"),
        "t": stops("ranks t that share a layer", (1, 2, 4, 8), 1),
        "cut": checkbox("their sequence is cut, too", False),
        "precision": choice("precision", [(name, name) for name in PRECISIONS], next(iter(PRECISIONS))),
    }
    return Explorable(draw, controls, (9.6, 4.8), layout=[["held", "paid"]], width_ratios=[1.5, 1])


def held(state: Mapping, stage: int) -> dict[str, float]:
    """Bytes on each rank, by kind, at a stage."""
    model, each = MODELS[state["model"]], PRECISIONS[state["precision"]]
    mine, p = model.parameters / state["t"], state["p"]

    def of(kind: str) -> float:
        alone = {name: getattr(each, name) * (name == kind) for name in ("optimizer", "gradient", "weight")}
        return memory.zero(mine, p, stage, **alone)

    layer = memory.activations(
        model.sequence,
        state["batch"],
        model.hidden,
        model.heads,
        tensor=state["t"],
        sequence_parallel=state["cut"] and state["t"] > 1,
        recompute=state["recompute"],
    )
    return {
        "weights": of("weight"),
        "gradients": of("gradient"),
        "optimizer states": of("optimizer"),
        "activations": each.activations * memory.first_stage(model.layers, layer),
    }


def paid(state: Mapping, stage: int) -> dict[str, float]:
    """In a step with one microbatch: bytes that each rank sends for weights and within layers, operations done again.

    The latter as a share of the others. Stage 3 gathers the weights twice instead of once.
    """
    model, each = MODELS[state["model"]], PRECISIONS[state["precision"]]
    p, t, tokens = state["p"], state["t"], state["batch"] * model.sequence * model.hidden
    parameters, activation = -(-model.parameters // t), 2 * each.activations * tokens
    gather = collectives.all_gather(p, parameters * each.weight, 0.0, 1.0, itemsize=each.weight)
    scatter = collectives.reduce_scatter(p, parameters * each.gradient, 0.0, 1.0, itemsize=each.gradient)
    passes = 3 if state["recompute"] == "full" else 2
    within = 2 * model.layers * passes * collectives.ring(t, activation, 0.0, 1.0, itemsize=2 * each.activations)
    again = model.layers * model.recomputed_flops(state["batch"], state["recompute"])
    return {
        "sent for weights": scatter + gather * (2 if stage == 3 else 1),
        "sent within layers": within,
        "computed again": again / model.flops(state["batch"], "nothing"),
    }


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    stage = state["stage"]
    bars = [held(state, each) for each in range(4)]
    costs = paid(state, stage)
    total = sum(bars[stage].values())
    _draw_held(axes["held"], bars, stage)
    _draw_paid(axes["paid"], costs, paid({**state, "recompute": "full"}, 3))
    ranks = state["p"] * state["t"]
    axes["held"].set_title(f"Each of {ranks:,} rank{'s' * (ranks > 1)} holds", pad=TITLE)
    fits = "it fits" if total <= LIMIT else "it does not fit"
    again = (
        f"computes {100 * costs['computed again']:.1f} % more" if costs["computed again"] else "computes nothing twice"
    )
    largest = max(bars[stage], key=bars[stage].__getitem__)
    return (
        f"A rank has {units.nbytes(LIMIT)} and needs {units.nbytes(total)}: {fits}. Most of it is {largest}. Each rank "
        f"sends {units.nbytes(costs['sent for weights'] + costs['sent within layers'])} in a step and {again}."
    )


def _draw_held(axes: Axes, bars: list[dict[str, float]], chosen: int) -> None:
    top = max(1.3 * LIMIT, 1.15 * sum(bars[chosen].values()))
    for stage, kinds in enumerate(bars):
        bottom, total = 0.0, sum(kinds.values())
        for kind, nbytes in kinds.items():
            colour = COLORS[kind] if stage == chosen else palette.tint(COLORS[kind], 0.35)
            label = kind if stage == chosen else None
            axes.bar(stage, max(0.0, min(nbytes, top - bottom)), bottom=bottom, width=0.7, color=colour, label=label)
            bottom = min(top, bottom + nbytes)
        inside = total > 0.92 * top  # the legend is right above the axes
        axes.text(
            stage,
            min(total, top) + top * (-0.015 if inside else 0.015),
            units.nbytes(total) + (" ↑" if total > top else ""),
            ha="center",
            va="top" if inside else "bottom",
            fontsize=10,
            fontweight="bold" if stage == chosen else "normal",
            bbox={"facecolor": style.CARD, "alpha": 0.7, "edgecolor": "none", "boxstyle": "round,pad=0.15"},
        )
    axes.axhline(LIMIT, color=style.VERMILLION, linewidth=1.5)
    axes.set(xlim=(-0.6, 3.6), ylim=(0, top), xlabel="ZeRO stage")
    style.ticks(axes.xaxis, range(4), [str(stage) for stage in range(4)])
    style.ticks(axes.yaxis, [LIMIT], [units.nbytes(LIMIT)])
    row = {"ncols": 4, "columnspacing": 1.0, "handlelength": 1.0, "borderaxespad": 0.2, "borderpad": 0.0}
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=9.5, **row)


def _draw_paid(axes: Axes, costs: dict[str, float], most: dict[str, float]) -> None:
    bytes_most = max(most["sent for weights"], most["sent within layers"]) or 1.0
    for place, (kind, value) in enumerate(costs.items()):
        is_bytes = kind.startswith("sent")
        length = value / (bytes_most if is_bytes else most[kind])
        axes.barh(place, length, height=0.42, color=style.ORANGE if is_bytes else style.PURPLE)
        shown = units.nbytes(value) if is_bytes else f"{100 * value:.1f} % of the operations"
        axes.text(0.015, place - 0.3, f"{kind}: {shown}", fontsize=10, va="bottom")
    axes.set(
        xlim=(0, 1.05),
        ylim=(len(costs) - 0.5, -0.8),
    )
    axes.set_title("and pays in each step", pad=TITLE)
    style.ticks(axes.yaxis, [], [])
    style.ticks(axes.xaxis, [], [])
