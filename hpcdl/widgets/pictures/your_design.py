"""A student's own pipeline schedule: its timeline, and its bubble and memory beside the known schedules'."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from matplotlib.axes import Axes

from hpcdl.cost.pipeline import play
from hpcdl.cost.timeline import Timeline
from hpcdl.parallel.schedules import SCHEDULES
from hpcdl.parallel.searched import searched
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.pictures.fill_the_bubble import NAMES, draw_ops

Design = Callable[[int, int, float, float, float, int], list]  # p, m, f, b, w, cap
KNOWN = {"one_f_one_b": (style.ORANGE, "o"), "zb_h1": (style.GREEN, "s"), "zb_v": (style.PURPLE, "^")}
SEARCHED, YOURS = "searched", "yours"


def explorable(design: Design | None = None) -> Explorable:
    """Draw `design`, or the library's search if it is None."""
    controls = {
        "p": slider("stages p", 4, 1, 6),
        "m": slider("microbatches m", 8, 1, 12),
        "cap": slider("cap, microbatches", 4, 1, 12),
        "f": slider("F, s", 1.0, 0.5, 2.0, 0.25),
        "b": slider("B, s", 1.0, 0.5, 2.0, 0.25),
        "w": slider("W, s", 1.0, 0.25, 2.0, 0.25),
    }
    return Explorable(partial(draw, design=design), controls, (9.6, 5.4), layout=[["time"], ["score"]])


@lru_cache(maxsize=256)
def found(p: int, m: int, f: float, b: float, w: float, cap: int) -> Timeline:
    """Return the library's search within the cap."""
    return play(searched(p, m, f, b, w, limit=cap), f, b, w)


@lru_cache(maxsize=256)
def known(name: str, p: int, m: int, f: float, b: float, w: float) -> Timeline:
    """Return a schedule of the library, whatever memory it takes."""
    schedule = SCHEDULES[name]
    each = [seconds / schedule.chunks for seconds in (f, b, w)]
    return play(schedule.orders(p, m), *each, parts=schedule.parts(p))


def held(timeline: Timeline) -> float:
    """Return the most microbatches that a stage holds."""
    return max(timeline.memory(len(timeline.orders) / len(timeline.parts)))


def draw(state: dict, axes: Mapping[str, Axes], design: Design | None) -> str:
    """The schedule in time above; below, (memory, bubble) of it and of the known ones. The sentence compares them."""
    p, m, cap, f, b, w = (state[key] for key in ("p", "m", "cap", "f", "b", "w"))
    try:
        mine = play(design(p, m, f, b, w, cap), f, b, w) if design else found(p, m, f, b, w, cap)
    except ValueError as error:
        return style.Alarm(f"{error}.")
    draw_ops(axes["time"], mine.events(), p, mine.makespan)
    axes["time"].set(xlabel="seconds", xlim=(0, 1.03 * mine.makespan))
    axes["time"].set_title(f"{'Your design' if design else 'The search'}, cap {cap}")
    scores = {NAMES[name]: (known(name, p, m, f, b, w), *look) for name, look in KNOWN.items()}
    if design:
        scores[SEARCHED] = found(p, m, f, b, w, cap), style.SKY, "D"
    scores[YOURS if design else SEARCHED] = mine, style.VERMILLION, "*"
    for name, (timeline, color, mark) in scores.items():
        size = 17 if timeline is mine else 9
        axes["score"].plot(held(timeline), 100 * timeline.bubble, mark, color=color, markersize=size, label=name)
    _limits(axes["score"], cap, p, max(timeline.bubble for timeline, *_ in scores.values()))
    others = ", ".join(
        f"{name} {100 * timeline.bubble:.1f} %" for name, (timeline, *_) in scores.items() if timeline is not mine
    )
    most = f"{held(mine):g} microbatch{'es' * (held(mine) != 1)}"
    said = f"Bubble {100 * mine.bubble:.1f} % with {most} held at most. Others: {others}."
    return said if held(mine) <= cap else style.Alarm(f"Over the cap of {cap}. {said}")


def _limits(axes: Axes, cap: int, p: int, worst: float) -> None:
    """The axes, and a line where the memory ends."""
    axes.axvline(cap, color=style.GREY, linestyle=":", label="cap")
    axes.set(xlim=(0, 1.55 * max(cap, p, 4)), ylim=(-3, max(100 * worst, 10) + 8))
    axes.set(xlabel="microbatches held at most", ylabel="bubble, %", title="Down and to the left is better")
    axes.legend(loc="center right", fontsize=10)
