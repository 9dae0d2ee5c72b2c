"""A pipeline schedule in time: what each stage does when, what it holds meanwhile, and the bubble that is left."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from hpcdl.cost.pipeline import play
from hpcdl.cost.published.pipelines import ZERO_BUBBLE
from hpcdl.cost.timeline import Timeline
from hpcdl.parallel.schedules import SCHEDULES, looped
from hpcdl.widgets.kit import palette, style
from hpcdl.widgets.kit.controls import choice, slider
from hpcdl.widgets.kit.explorable import Explorable

NAMES = {
    "gpipe": "GPipe",
    "one_f_one_b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "zb_h1": "ZB-H1",
    "zb_h2": "ZB-H2",
    "zb_v": "ZB-V",
}
PRINTED = ("one_f_one_b", "interleaved", "zb_h1", "zb_h2")  # in the order of table 5
COLORS = {"F": style.SKY, "B": style.BLUE, "W": style.GREEN}
MEANS = {"F": "F: forward", "B": "B: backward", "W": "W: gradient of the weights"}
LABELLED = 36  # ops: with more of them their numbers are too small to read
SLIDERS = "as the sliders say"
LABEL = (-0.045, 0.5)  # where an axis has its name, in shares of the axes: with room for ticks of two digits

Orders = Callable[..., list]
Event = tuple[int, str, int, int, float, float]  # stage, op, microbatch, chunk, start, end


def explorable(own: Mapping[str, Orders] | None = None) -> Explorable:
    """The library's schedules; those named in `own`, functions of p and m (and v, if interleaved), take their place."""
    runs = [(model, m) for model, row in ZERO_BUBBLE.items() for m in row[3]]
    presets = [(SLIDERS, ""), *((f"{model} parameters, m = {m}", f"{model}|{m}") for model, m in runs)]
    controls = {
        "schedule": choice("schedule", [(label, name) for name, label in NAMES.items()], "one_f_one_b"),
        "p": slider("stages p", 4, 1, 8),
        "m": slider("microbatches m", 8, 1, 24),
        "v": slider("chunks v (interleaved)", 2, 1, 4),
        "f": slider("F, s", 1.0, 0.5, 3.0, 0.1, ".1f"),
        "b": slider("B, s", 1.0, 0.5, 3.0, 0.1, ".1f"),
        "w": slider("W, s", 1.0, 0.0, 3.0, 0.1, ".1f"),
        "message": slider("message, s", 0.0, 0.0, 1.0, 0.05),
        "preset": choice("times", presets, ""),
    }
    layout = {"layout": [["time"], ["memory"]], "height_ratios": [2.1, 1]}
    return Explorable(partial(draw, own=dict(own or {})), controls, (9.6, 5.4), **layout)


def draw(state: dict, axes: Mapping[str, Axes], own: Mapping[str, Orders]) -> str:
    """The timeline above, microbatches held below; the sentence has the bubble, and the one that was printed."""
    name, (p, m, v, seconds, printed) = state["schedule"], _setting(state)
    if name == "interleaved" and name in own:
        m = -(-m // p) * p  # the lab's takes multiples of p alone
    try:
        timeline = played(name, p, m, v, seconds, own)
    except ValueError as error:
        return style.Alarm(f"{error}.")
    chunks = len(timeline.parts) // p
    draw_ops(axes["time"], timeline.events(), p, timeline.makespan)
    style.ticks(axes["time"].xaxis, [], [])
    axes["time"].set_title(f"{NAMES[name]}{', yours,' if name in own else ''} on {p} stages, {m} microbatches", pad=28)
    unit = "ms" if state["preset"] else "s"
    _draw_memory(axes["memory"], timeline, p, chunks, unit)
    most = max(timeline.memory(1 / chunks))
    said = f"{timeline.makespan:.4g} {unit}, bubble {100 * timeline.bubble:.2f} %"
    if printed is not None:
        said += f" (Qi et al. 2024 printed {printed:.2f} %)"
    return f"{said}. At most {most:.3g} microbatches are held at a time (strongest line: stage 0)."


def _setting(state: dict) -> tuple:
    """p, m, v, the seconds of F, B, W and a message, and the bubble that was printed for them, in percent."""
    if not state["preset"]:
        return state["p"], state["m"], state["v"], tuple(state[key] for key in ("f", "b", "w", "message")), None
    model, m = state["preset"].split("|")
    p, _, chunks, runs = ZERO_BUBBLE[model]
    seconds, printed, _ = runs[int(m)]
    figures = dict(zip(PRINTED, printed, strict=True))
    return p, int(m), chunks, seconds, figures.get(state["schedule"])


def played(name: str, p: int, m: int, v: int, seconds: tuple, own: Mapping[str, Orders]) -> Timeline:
    """A schedule with F, B and W of a whole stage and a message in `seconds`; ValueError if it cannot be followed."""
    schedule = SCHEDULES[name]
    chunks = v if name == "interleaved" else schedule.chunks
    orders = own.get(name, schedule.orders)(p, m, *([v] if name == "interleaved" else []))
    if len(orders) != p:
        raise ValueError(f"the schedule has {len(orders)} orders for {p} stages; it has one for each stage")
    parts = looped(p, v) if name == "interleaved" else schedule.parts(p)
    f, b, w, message = seconds
    return play(orders, f / chunks, b / chunks, w / chunks, message=message, parts=parts)


def draw_ops(axes: Axes, events: Iterable[Event], p: int, end: float, top: float = -0.4, bottom: float = 0.4) -> None:
    """A lane for each stage, a box for each op; `top` and `bottom` are the boxes' place in the lane."""
    events = list(events)
    gap = 0.0012 * end
    boxes: dict[str, list] = {}  # one collection for each colour: many at once are drawn faster
    for stage, op, _, chunk, start, stop in events:
        right = max(stop - gap, start + 0.5 * (stop - start))
        above, below = stage + top, stage + bottom
        colour = COLORS[op] if chunk % 2 == 0 else palette.tint(COLORS[op], 0.62)
        boxes.setdefault(colour, []).append(((start, above), (right, above), (right, below), (start, below)))
    for colour, corners in boxes.items():
        polygons: Any = np.array(corners)  # drawn faster than lists are, though the stubs want those
        axes.add_collection(PolyCollection(polygons, facecolors=colour, linewidths=0))
    if len(events) <= LABELLED:
        for stage, _, k, _, start, stop in events:
            middle = stage + (top + bottom) / 2
            axes.text((start + stop) / 2, middle, str(k), ha="center", va="center", fontsize=8, color=style.CARD)
    axes.set(xlim=(0, 1.005 * end), ylim=(p - 0.5, -0.5), ylabel="stage")
    axes.yaxis.set_label_coords(*LABEL)
    style.ticks(axes.yaxis, range(p), [str(stage) for stage in range(p)])
    used = [op for op in COLORS if any(event[1] == op for event in events)]
    marks = [axes.plot([], [], "s", color=COLORS[op], label=MEANS[op], markersize=9)[0] for op in used]
    axes.legend(handles=marks, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(marks), handletextpad=0.1)


def _draw_memory(axes: Axes, timeline: Timeline, p: int, chunks: int, unit: str) -> None:
    """Microbatches that stages hold; the darkest line is stage 0."""
    shades = [palette.tint(style.ORANGE, 1.0 - 0.75 * stage / max(1, p - 1)) for stage in range(p)]
    for stage in range(p) if p <= 4 else (0, p // 3, 2 * p // 3, p - 1):
        curve = timeline.memory_curve(stage, 1 / chunks)
        seconds, held = zip(*curve, (timeline.makespan, curve[-1][1]), strict=True)
        axes.plot(seconds, held, drawstyle="steps-post", color=shades[stage])
    top = max(timeline.memory(1 / chunks))
    axes.set(xlim=(0, 1.005 * timeline.makespan), ylim=(0, 1.08 * top), xlabel=f"time, {unit}", ylabel="held")
    axes.yaxis.set_label_coords(*LABEL)
    step = max(1, round(top / 3))
    style.ticks(axes.yaxis, range(0, int(top) + 1, step), [str(held) for held in range(0, int(top) + 1, step)])


def draw_beside(axes: Axes, measured: Iterable[Event], predicted: Iterable[Event], title: str, end: float) -> None:
    """What stages did, in the upper half of each lane, and what the model foretold, in the lower half."""
    measured, predicted = list(measured), list(predicted)
    p = 1 + max(event[0] for event in measured)
    draw_ops(axes, predicted, p, end, 0.04, 0.4)
    draw_ops(axes, measured, p, end, -0.4, -0.04)
    axes.set(title=title, ylabel="stage: measured,\npredicted")
