"""A generator hands out one value at a time and waits at its `yield`: what is drawn when, and what comes out."""

from typing import NamedTuple

from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import frame, paper, table
from hpcdl.widgets.kit.controls import choice
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint
from hpcdl.widgets.kit.stepper import Stepper

ORDERS = ((4, 0, 6, 2, 5, 1, 3), (1, 5, 2, 4, 3, 6, 0), (6, 3, 0, 1, 4, 2, 5))
SIZE = 3
PROGRAMS = {
    "yield from": ("def epochs(n, size, times, order):", "    for _ in range(times):",
                   "        yield from order(n).split(size)"),
    "yield": ("def epochs(n, size, times, order):", "    for _ in range(times):", "        yield order(n).split(size)"),
    "a list": ("def epochs(n, size, times, order):", "    found = []", "    for _ in range(times):",
               "        found += order(n).split(size)", "    return found"),
}  # fmt: skip
DRAWN, OUT, UNKNOWN = tint(style.SKY, 0.25), tint(style.GREEN, 0.4), tint(style.GREY, 0.06)


class HandedOut(NamedTuple):
    """The orders drawn so far, the indices handed out so far, and the last item as (epoch, start, stop)."""

    drawn: int
    out: int
    item: tuple[int, int, int] | None


def explorable() -> Explorable:
    """How the program hands out, and how many items were asked for."""
    controls = {
        "program": choice("the program with", list(PROGRAMS), "yield from"),
        "asked": Stepper("items asked for", 0, 0, 9),
    }
    return Explorable(draw, controls, (9.6, 3.6), layout=[["program", "batches"]], width_ratios=[1.15, 1])


def moment(program: str, asked: int) -> HandedOut:
    """Seven indices in batches of three, three epochs: where the program stands after so many items."""
    n = len(ORDERS[0])
    batches = [(epoch, start, min(n, start + SIZE)) for epoch in range(len(ORDERS)) for start in range(0, n, SIZE)]
    items = [(epoch, 0, n) for epoch in range(len(ORDERS))] if program == "yield" else batches
    item = items[min(asked, len(items)) - 1] if asked else None
    drawn = len(ORDERS) if program == "a list" else item[0] + 1 if item else 0
    return HandedOut(drawn, item[0] * n + item[2] if item else 0, item)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    now = moment(state["program"], state["asked"])
    _draw_program(axes["program"], PROGRAMS[state["program"]])
    _draw_batches(axes["batches"], now)
    return sentence(state["program"], state["asked"], now)


def _draw_program(axes: Axes, lines: tuple[str, ...]) -> None:
    for row, line in enumerate(lines):
        key = "yield" in line or "return" in line
        axes.text(
            0.0, 0.9 - 0.14 * row, line, family="monospace", fontsize=12, va="center", parse_math=False,
            weight="bold" if key else "normal",
        )  # fmt: skip
    axes.set_axis_off()
    axes.set_title("program")


def _draw_batches(axes: Axes, now: HandedOut) -> None:
    """Draw a row for each epoch; epochs to come are empty."""
    n = len(ORDERS[0])
    labels = [[str(i) if epoch < now.drawn else "?" for i in order] for epoch, order in enumerate(ORDERS)]
    colours = [
        [OUT if epoch * n + i < now.out else DRAWN if epoch < now.drawn else UNKNOWN for i in range(n)]
        for epoch in range(len(ORDERS))
    ]
    table(axes, labels, colours)
    if now.item:
        epoch, start, stop = now.item
        frame(axes, epoch, start, 1, stop - start)
    paper(axes, len(ORDERS), n)
    axes.set_title("three epochs of order(7)")


def sentence(program: str, asked: int, now: HandedOut) -> str:
    """What came out, and what had to be drawn for it."""
    calls = f"order has been called {now.drawn} time{'s' * (now.drawn != 1)}"
    if not now.item:
        return f"Nothing has been asked for, and {calls}." + " A list is made at once." * (program == "a list")
    epoch, start, stop = now.item
    indices = list(ORDERS[epoch][start:stop])
    end = " There are no more." if now.out == len(ORDERS) * len(ORDERS[0]) else ""
    if program == "yield":
        return f"Item {min(asked, 3)} is a tuple of all batches of epoch {epoch + 1}: no index tensor. {calls}.{end}"
    return f"Item {asked} is tensor({indices}); {calls}.{end}"
