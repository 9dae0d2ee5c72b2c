"""A training on a mesh while it runs: loss, speed, what each rank sends and holds, and the last step of all ranks."""

import math
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from hpcdl.training.hybrid import metering
from hpcdl.training.hybrid.configuration import Configuration
from hpcdl.training.hybrid.tracing import STEP, Span
from hpcdl.widgets.kit.style import BLUE, CONTOUR, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, ticks
from hpcdl.widgets.pictures.bucket_timeline import Bar, draw_bars

if TYPE_CHECKING:
    from hpcdl.cluster import Record

LAYOUT = [["loss", "rate", "sent", "held"], ["timeline"] * 4]
ONE = "one rank"
KINDS = {"forward": "forward", "backward": "backward", "weights": "weights", "optimizer": "update", "wait": "wait"}

OTHER = "other"
COLORS = {  # of bytes sent and held; `OTHER` has all other kinds, such as samples and control messages
    "parameters": BLUE,
    "gradients": ORANGE,
    "optimizer states": GREEN,
    "activations": SKY,
    "tensor": PURPLE,
    "sequence": VERMILLION,
    "temporaries": CONTOUR,
    OTHER: GREY,
}


def fresh(configuration: Configuration) -> dict[str, Any]:
    """Return the state of a picture before the first record."""
    return {"configuration": configuration, "steps": [], "pending": {}, "last": {}, "said": ""}


def append(state: dict[str, Any], record: "Record") -> None:
    """Add a `Record` of `train_here` to `state`; a step is shown once all ranks have reported it.

    `steps` has rank 0's record of each step, without spans; `last` has the last step's records by rank. A step that is
    repeated after a restart replaces itself and all later ones.
    """
    step = record.value["step"]
    ranks = state["pending"].setdefault(step, {})
    ranks[record.rank] = record.value
    if len(ranks) < state["configuration"].ranks:
        return
    state["last"] = dict(sorted(ranks.items()))
    state["pending"] = {later: found for later, found in state["pending"].items() if later > step}
    while state["steps"] and state["steps"][-1]["step"] >= step:
        state["steps"].pop()
    state["steps"].append({name: value for name, value in ranks[0].items() if name != "spans"})


def draw(state: dict[str, Any], axes: dict[str, Axes]) -> str:
    """Draw a state as `fresh` makes it on the axes of `LAYOUT`."""
    last, unit = state["last"], _unit(state)
    _curve(axes["loss"], state, "loss", BLUE, "Loss")
    _curve(axes["rate"], state, f"{unit}_per_second", GREEN, f"{unit.capitalize()}/s")
    axes["rate"].set_ylim(0, 1.1 * max((record[f"{unit}_per_second"] for record in state["steps"]), default=1.0))
    sent, held = ({rank: kinds(record) for rank, record in last.items()} for kinds in (kinds_sent, kinds_held))
    _bars(axes["sent"], sent, 2**10, "Sent, KB a step")
    _bars(axes["held"], held, 2**20, "Held, MB")
    _name_kinds(axes["sent"], [*sent.values(), *held.values()])
    _timeline(axes["timeline"], last, state["configuration"].ranks)
    return state["said"] or sentence(state)


def sentence(state: dict[str, Any]) -> str:
    """Return the sentence below the picture."""
    configuration, last, unit = state["configuration"], state["last"], _unit(state)
    if not last:
        return "No rank has reported yet."
    now, shares = last[0], {rank: waiting(record) for rank, record in last.items()}
    longest = max(shares, key=shares.__getitem__)
    waits = f"; rank {longest} waits longest, {100 * shares[longest]:.0f} %" if len(last) > 1 else ""
    return (
        f"Step {now['step']} of {configuration.steps} on {mesh_of(configuration)}: loss {now['loss']:.3f}, "
        f"{now[f'{unit}_per_second']:,.0f} {unit}/s{waits}."
    )


def mesh_of(configuration: Configuration) -> str:
    """Return the mesh without axes of one rank: data=2,pipeline=2."""
    sizes = [f"{axis}={size}" for axis, size in configuration.axes.items() if size > 1]
    return ",".join(sizes) or ONE


def waiting(record: dict[str, Any]) -> float:
    """Return the share of its step for which a rank waited for messages."""
    return record["waited"] / record["seconds"]


def kinds_sent(record: dict[str, Any]) -> dict[str, int]:
    """Return the bytes that a rank sent in a step, by kind of `COLORS`."""
    return _grouped(dict(zip(metering.KINDS, (record[name] for name in metering.BY_KIND), strict=True)))


def kinds_held(record: dict[str, Any]) -> dict[str, int]:
    """Return the most bytes that a rank held in a step, by kind of `COLORS`."""
    return _grouped(record["peak_by_kind"])


def _grouped(nbytes: dict[str, int]) -> dict[str, int]:
    found = {kind: nbytes.get(kind, 0) for kind in COLORS}
    return found | {OTHER: sum(nbytes.values()) - sum(found.values())}


def bars(last: dict[int, dict[str, Any]]) -> list[Bar]:
    """Return what each rank did in the last step, in seconds since the first rank began it."""
    spans = {rank: [Span(*span) for span in record["spans"]] for rank, record in last.items()}
    begin = min((span.start for rows in spans.values() for span in rows if span.name == STEP), default=0.0)
    return [
        Bar(rank, KINDS[span.name], span.start - begin, span.end - begin)
        for rank, rows in spans.items()
        for span in rows
        if span.name in KINDS
    ]


def _unit(state: dict[str, Any]) -> str:
    return "tokens" if state["configuration"].model == "gpt" else "images"


def _curve(axes: Axes, state: dict[str, Any], name: str, color: str, title: str) -> None:
    steps = [record["step"] for record in state["steps"]]
    axes.plot(steps, [record[name] for record in state["steps"]], color=color)
    axes.set(xlabel="step", title=title, xlim=(0, _length(max(steps, default=1), state["configuration"].steps)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")


def _bars(axes: Axes, found: dict[int, dict[str, int]], unit: int, title: str) -> None:
    """Draw a bar for each rank, in parts by kind, with its number."""
    totals = {rank: sum(kinds.values()) / unit for rank, kinds in found.items()}
    left = dict.fromkeys(found, 0.0)
    for kind, color in COLORS.items():
        for rank, kinds in found.items():
            axes.barh(rank, kinds[kind] / unit, left=left[rank], height=0.6, color=color)
            left[rank] += kinds[kind] / unit
    for rank, total in totals.items():
        axes.text(0.0, rank - 0.5, f" {total:,.4g}", fontsize=9, va="center")
    axes.set(title=title, ylabel="rank", ylim=(max(found, default=0) + 0.5, -0.7))
    axes.set_xlim(0, 1.05 * max([*totals.values(), 1e-3]))
    ticks(axes.xaxis, [], [])
    ticks(axes.yaxis, list(found), [str(rank) for rank in found])


def _name_kinds(axes: Axes, found: list[dict[str, int]]) -> None:
    """Name the colours below these axes and the next ones, where they have no ticks."""
    shown = [kind for kind in COLORS if any(kinds[kind] for kinds in found)]
    marks = [axes.plot([], [], "s", color=COLORS[kind], label=kind, markersize=7)[0] for kind in shown]
    if marks:
        axes.legend(
            handles=marks,
            loc="upper left",
            bbox_to_anchor=(-0.15, 0.02),
            ncols=3,
            fontsize=10,
            handletextpad=0.1,
            columnspacing=0.8,
            labelspacing=0.2,
        ).set_in_layout(False)


def _timeline(axes: Axes, last: dict[int, dict[str, Any]], ranks: int) -> None:
    found = bars(last)
    end = _rounded(max([1e-3, *(bar.end for bar in found)]))
    draw_bars(axes, found, ranks, 1e3, "ms", end)
    axes.set_xlim(0, 1.1e3 * end)  # room for the words at the end
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= 1e3 * end])
    axes.set_title("The last step")
    for rank, record in last.items():
        said, place = f"waits {100 * waiting(record):.0f} %", axes.get_yaxis_transform()
        axes.text(1.0, rank + 0.34, said, transform=place, ha="right", va="center", fontsize=10)


def _length(done: int, steps: int) -> int:
    """Return the end of the axis of steps: 10, 20, 40, ... up to all steps."""
    return max(1, min(steps, 10 * 2 ** max(0, math.ceil(math.log2(done / 10)))))


def _rounded(seconds: float) -> float:
    """Round up to one or two digits, so the axis seldom changes."""
    unit = 10 ** math.floor(math.log10(seconds)) / 5
    return unit * math.ceil(seconds / unit)
