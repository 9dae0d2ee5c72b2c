"""One memory, many tensors: where each element of a view lies, by its offset and strides; or that it was copied."""

from collections.abc import Callable

import numpy as np
import torch
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import frame, paper, table
from hpcdl.widgets.kit.controls import choice, slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "x": lambda x: x,
    "x[1]": lambda x: x[1],
    "x[:, 1]": lambda x: x[:, 1],
    "x[:, 1:2]": lambda x: x[:, 1:2],
    "x[:, ::2]": lambda x: x[:, ::2],
    "x[:, [0, 2]]": lambda x: x[:, [0, 2]],
    "x.T": lambda x: x.T,
    "x.view(4, 3)": lambda x: x.view(4, 3),
    "x.T.reshape(3, 4)": lambda x: x.T.reshape(3, 4),
    "x[1].expand(3, 4)": lambda x: x[1].expand(3, 4),
    "x[1].repeat(3, 1)": lambda x: x[1].repeat(3, 1),
    "x.flatten().unfold(0, 4, 2)": lambda x: x.flatten().unfold(0, 4, 2),
}
CELLS = 12  # of the memory of x
EMPTY = tint(style.GREY, 0.06)
BETWEEN = 2.0  # rows between two memories


def explorable(view: str = "x.T") -> Explorable:
    """How x (3, 4) is looked at, and which element of the result is framed."""
    controls = {
        "view": choice("y =", list(VIEWS), view),
        "row": slider("row of y", 1, 0, 4),
        "column": slider("column of y", 1, 0, 3),
    }
    return Explorable(draw, controls, (9.6, 3.6), layout=[["tensor", "memory"]], width_ratios=[1, 2.6])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    x = torch.arange(CELLS).view(3, 4)
    y = VIEWS[state["view"]](x)
    copied = y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    at = tuple(min(state[name], size - 1) for name, size in zip(("row", "column")[2 - y.dim() :], y.shape, strict=True))
    _draw_tensor(axes["tensor"], state["view"], y, at)
    _draw_memories(axes["memory"], y, at, copied)
    return sentence(state["view"], y, at, copied)


def cell(y: torch.Tensor, at: tuple[int, ...]) -> int:
    """The place in memory of the element at an index."""
    return int(y.storage_offset()) + sum(i * stride for i, stride in zip(at, y.stride(), strict=True))


def _shades(n: int) -> list[str]:
    """A colour for each element, in the order in which its tensor runs through them."""
    return [tint(style.BLUE, round(0.1 + 0.55 * k / max(1, n - 1), 3)) for k in range(n)]


def _draw_tensor(axes: Axes, name: str, y: torch.Tensor, at: tuple[int, ...]) -> None:
    rows = y.view(1, -1) if y.dim() == 1 else y
    shades = np.array(_shades(rows.numel()), dtype=object).reshape(rows.shape)
    table(axes, [[str(number) for number in row] for row in rows.tolist()], shades)
    frame(axes, at[0] if y.dim() == 2 else 0, at[-1], 1, 1)
    paper(axes, 5, 4)
    axes.set_title(f"y = {name}" if len(name) < 18 else "y")


def _draw_memories(axes: Axes, y: torch.Tensor, at: tuple[int, ...], copied: bool) -> None:
    """The memory of x; and below it that of y, where y has one of its own."""
    shades, looked = dict[int, str](), _shades(y.numel())
    for k, index in enumerate(np.ndindex(*y.shape)):
        shades.setdefault(cell(y, index), looked[k])
    of_x = [EMPTY] * CELLS if copied else [shades.get(i, EMPTY) for i in range(CELLS)]
    table(axes, [[str(i) for i in range(CELLS)]], [of_x], size=12)
    _number(axes, CELLS, 0)
    if copied:
        held = y.flatten().tolist()
        axes.text(0, BETWEEN - 0.25, "memory of y: a copy", weight="bold", fontsize=13)
        table(axes, [[str(number) for number in held]], [[shades[i] for i in range(len(held))]], 12, top=BETWEEN)
        _number(axes, len(held), BETWEEN)
    frame(axes, BETWEEN if copied else 0, cell(y, at), 1, 1)
    paper(axes, BETWEEN + 1.6, CELLS)
    axes.set_title("memory of x" if copied else "memory of x and y")


def _number(axes: Axes, cells: int, top: float) -> None:
    axes.text(0.5, top + 1.35, "cell 0", fontsize=9, color=style.GREY, ha="center")
    axes.text(cells - 0.5, top + 1.35, f"{cells - 1}", fontsize=9, color=style.GREY, ha="center")


def sentence(name: str, y: torch.Tensor, at: tuple[int, ...], copied: bool) -> str:
    """Shape, strides, the framed element's way to its cell, and whether numbers were copied."""
    way = " + ".join([str(y.storage_offset()), *(f"{i}·{stride}" for i, stride in zip(at, y.stride(), strict=True))])
    index = ", ".join(map(str, at))
    kind = "A copy: x does not see what you write into y." if copied else "A view: what you write into y is in x."
    return (
        f"y = {name}: shape {tuple(y.shape)}, strides {y.stride()}. y[{index}] is in cell {way} = {cell(y, at)}. {kind}"
    )
