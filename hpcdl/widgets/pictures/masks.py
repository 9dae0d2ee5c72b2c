"""A condition is a tensor of answers; `torch.where` chooses by them, element by element."""

from collections.abc import Callable

import torch
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import paper, table
from hpcdl.widgets.kit.controls import choice, slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint

X = torch.tensor([[3, -2, 0, 5], [-4, 1, -1, 2], [0, 4, -3, -5]])
CHOICES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "torch.where(c, 1, -1)": lambda c, x: torch.where(c, 1, -1),
    "torch.where(c, x, 0)": lambda c, x: torch.where(c, x, 0),
    "torch.where(c, x, -x)": lambda c, x: torch.where(c, x, -x),
    "c * x": lambda c, x: c * x,
    "x[c]": lambda c, x: x[c],
}
YES, NO = tint(style.GREEN, 0.4), tint(style.GREY, 0.1)


def explorable() -> Explorable:
    """The threshold of the condition, and what is made of it."""
    controls = {"t": slider("t", 0, -6, 6), "what": choice("y =", list(CHOICES), "torch.where(c, x, 0)")}
    return Explorable(draw, controls, (9.6, 3.5), layout=[["x", "c", "y"]])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    c = state["t"] <= X
    y = CHOICES[state["what"]](c, X)
    _draw(axes["x"], "x", X, c)
    _draw(axes["c"], f"c = x >= {state['t']}", c, c)
    if y.dim() == 2:
        _draw(axes["y"], f"y = {state['what']}", y, c)
    else:
        _draw_list(axes["y"], y)
    return sentence(state["what"], y, c)


def _draw(axes: Axes, name: str, x: torch.Tensor, c: torch.Tensor) -> None:
    labels = [[str(value) for value in row] for row in x.tolist()]
    table(axes, labels, [[YES if yes else NO for yes in row] for row in c.tolist()], size=10 if x is c else 13)
    paper(axes, 3, 4)
    axes.set_title(name)


def _draw_list(axes: Axes, y: torch.Tensor) -> None:
    """What a mask in brackets leaves: one axis, drawn in rows of four."""
    numbers = [str(number) for number in y.tolist()] + [""] * (12 - len(y))
    colours = [YES if number else style.CARD for number in numbers]
    table(axes, [numbers[i : i + 4] for i in (0, 4, 8)], [colours[i : i + 4] for i in (0, 4, 8)])
    paper(axes, 3, 4)
    axes.set_title(f"y = x[c]: shape ({len(y)},)")


def sentence(what: str, y: torch.Tensor, c: torch.Tensor) -> str:
    """How many answers are True, and what comes of them."""
    yes = int(c.sum())
    said = f"{yes} of {c.numel()} answers are True."
    if what == "x[c]":
        return f"{said} A mask in brackets keeps those alone: the shape {tuple(y.shape)} depends on the numbers."
    if what == "c * x":
        return f"{said} True counts as 1, False as 0. But 0 times inf is nan: where there may be one, use torch.where."
    return f"{said} Both tensors are there in full; torch.where takes each element from one of them."
