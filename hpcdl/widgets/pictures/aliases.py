"""Names are labels on memories: what a step in place changes, all names of that memory see."""

from typing import NamedTuple

import torch
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import frame, paper, table
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint
from hpcdl.widgets.kit.stepper import Stepper

LINES = {  # of a program, each with what it does
    "a = torch.zeros(3)": "A memory of three numbers, and the name a for it.",
    "b = a": "No second memory: b is another name for the same one.",
    "c = a.clone()": "Now there are two memories.",
    "d = a[1:]": "A view: d is a name for a part of a's memory.",
    "b += 1": "In place: the numbers in the memory change, and a, b and d all see it. c does not.",
    "d[0] = 9": "Written through d, seen by a and b.",
    "a = a + 1": "a + 1 is a new tensor in a new memory, and the name a moves there. b and d stay where they were.",
    "c.copy_(a)": "In place again: c's own memory takes over the numbers.",
    "c = a": "Only the name c moves. No name refers to its old memory, so it is freed.",
}
NUMBER, OLD = tint(style.BLUE, 0.3), tint(style.ORANGE, 0.45)


class AliasedMemory(NamedTuple):
    """The numbers of one memory, and the names that look into it with the cells that each of them sees."""

    numbers: list[float]
    names: dict[str, range]


def explorable() -> Explorable:
    """The program, a line per click."""
    return Explorable(
        draw, {"step": Stepper("lines done", 1, 1, len(LINES))}, (9.6, 4.0), layout=[["program", "memory"]],
        width_ratios=[1, 1.7],
    )  # fmt: skip


def after(lines: int) -> list[AliasedMemory]:
    """The memories after so many lines, run by Python itself; a memory without a name is gone."""
    names: dict[str, torch.Tensor] = {}
    known: list[torch.Tensor] = []  # every tensor that there has been: no memory is given to another
    for line in list(LINES)[:lines]:
        exec(line, {"torch": torch}, names)
        known += names.values()
    memories: dict[int, AliasedMemory] = {}
    for tensor in known:
        place = tensor.untyped_storage().data_ptr()
        seen = {name: _cells(x) for name, x in sorted(names.items()) if x.untyped_storage().data_ptr() == place}
        if seen:
            memories.setdefault(place, AliasedMemory(_whole(tensor), seen))
    return list(memories.values())


def _whole(tensor: torch.Tensor) -> list[float]:
    return tensor.as_strided((3,), (1,), 0).tolist()


def _cells(x: torch.Tensor) -> range:
    return range(x.storage_offset(), x.storage_offset() + len(x))


def draw(state: dict, axes: dict[str, Axes]) -> str:
    step = state["step"]
    _draw_program(axes["program"], step)
    before = [memory.numbers for memory in after(step - 1)]
    memories = after(step)
    for row, memory in enumerate(memories):
        _draw_memory(axes["memory"], row, memory, before)
    paper(axes["memory"], 5.2, 8)
    axes["memory"].set_title("memories, and their names")
    line = list(LINES)[step - 1]
    return f"{line}   {LINES[line]}"


def _draw_program(axes: Axes, step: int) -> None:
    for row, line in enumerate(LINES):
        done, now = row < step, row == step - 1
        axes.text(
            0.06, 1 - (row + 0.6) / len(LINES), line, family="monospace", va="center",
            weight="bold" if now else "normal", color=style.INK if done else style.GREY, parse_math=False,
        )  # fmt: skip
    axes.text(0.0, 1 - (step - 0.4) / len(LINES), "▸", va="center", color=style.VERMILLION)
    axes.set_axis_off()
    axes.set_title("program")


def _draw_memory(axes: Axes, row: int, memory: AliasedMemory, before: list[list[float]]) -> None:
    top = 0.4 + 1.7 * row
    old = before[row] if row < len(before) else memory.numbers
    colours = [NUMBER if number == was else OLD for number, was in zip(memory.numbers, old, strict=True)]
    table(axes, [[f"{number:g}" for number in memory.numbers]], [colours], top=top)
    whole = [name for name, cells in memory.names.items() if len(cells) == len(memory.numbers)]
    axes.text(3.3, top + 0.62, ", ".join(whole), family="monospace", weight="bold", fontsize=14)
    for name, cells in memory.names.items():
        if name not in whole:
            frame(axes, top, cells.start, 1, len(cells))
            axes.text(cells.start + len(cells) / 2, top - 0.12, name, family="monospace", weight="bold", ha="center")
