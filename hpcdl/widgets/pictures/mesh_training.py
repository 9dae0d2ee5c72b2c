"""A training on a mesh while it runs: loss, speed, what each rank sends and holds, and the last step of all ranks."""

import math
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from hpcdl.training.hybrid.configuration import Configuration
from hpcdl.training.hybrid.tracing import STEP, Span
from hpcdl.widgets.kit.style import BLUE, GREEN, ORANGE, ticks
from hpcdl.widgets.pictures.bucket_timeline import Bar, draw_bars

if TYPE_CHECKING:
    from hpcdl.cluster import Record

LAYOUT = [["loss", "rate", "sent", "held"], ["timeline"] * 4]
ONE = "one rank"
KINDS = {"forward": "forward", "backward": "backward", "weights": "weights", "optimizer": "update", "wait": "wait"}


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
    _bars(axes["sent"], last, "bytes_sent", 2**10, "Sent, KB a step")
    _bars(axes["held"], last, "peak_bytes", 2**20, "Held, MB")
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


def _bars(axes: Axes, last: dict[int, dict[str, Any]], name: str, unit: int, title: str) -> None:
    """Draw a bar for each rank, with its number."""
    values = [record[name] / unit for record in last.values()]
    axes.barh(list(last), values, height=0.6, color=ORANGE)
    for rank, value in zip(last, values, strict=True):
        axes.text(0.0, rank - 0.5, f" {value:,.4g}", fontsize=9, va="center")
    axes.set(title=title, ylabel="rank", ylim=(max(last, default=0) + 0.5, -0.7))
    axes.set_xlim(0, 1.05 * max([*values, 1e-3]))
    ticks(axes.xaxis, [], [])
    ticks(axes.yaxis, list(last), [str(rank) for rank in last])


def _timeline(axes: Axes, last: dict[int, dict[str, Any]], ranks: int) -> None:
    found = bars(last)
    draw_bars(axes, found, ranks, 1e3, "ms", _rounded(max([1e-3, *(bar.end for bar in found)])))
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
