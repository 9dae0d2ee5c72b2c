"""Two shapes, aligned at their right ends: axes of length 1 stretch, others must agree."""

import itertools

import numpy as np
import torch
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import paper, table
from hpcdl.widgets.kit.controls import choice
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint
from hpcdl.widgets.kit.style import Alarm

SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (3, 1), (1, 4), (3, 3), (4,), (3,), (1,), ())
OWN, GHOST = 0.45, 0.1  # how strong a number's colour is where it is stored, and where it only seems to be


def explorable() -> Explorable:
    """The shapes of a and b."""
    options = [(str(shape), shape) for shape in SHAPES]
    controls = {"a": choice("shape of a", options, (3, 1)), "b": choice("shape of b", options, (4,))}
    return Explorable(draw, controls, (9.6, 3.6), layout=[["a", "b", "sum"]])


def values(shape: tuple[int, ...], factor: int) -> torch.Tensor:
    """1, 2, 3, ... times a factor."""
    return factor * torch.arange(1, 1 + max(1, int(np.prod(shape)))).view(shape)


def fits(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, int] | None:
    """The first two sizes, from the right, that do not go together; None where all do."""
    pairs = itertools.zip_longest(reversed(a), reversed(b), fillvalue=1)
    return next(((m, n) for m, n in pairs if m != n and 1 not in (m, n)), None)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    a, b = values(state["a"], 10), values(state["b"], 1)
    clash = fits(state["a"], state["b"])
    if clash:
        _draw(axes["a"], "a", a, a.shape, style.BLUE)
        _draw(axes["b"], "b", b, b.shape, style.ORANGE)
        axes["sum"].set_visible(False)
        return Alarm(
            f"{state['a']} and {state['b']}, aligned at their right ends: {clash[0]} meets {clash[1]}, and neither is "
            "1. RuntimeError."
        )
    shape = torch.broadcast_shapes(a.shape, b.shape)
    _draw(axes["a"], "a", a, shape, style.BLUE)
    _draw(axes["b"], "b", b, shape, style.ORANGE)
    _draw(axes["sum"], "a + b", a + b, shape, style.GREEN)
    return sentence(state["a"], state["b"], tuple(shape))


def _draw(axes: Axes, name: str, x: torch.Tensor, shape: tuple[int, ...], colour: str) -> None:
    """The tensor as it looks stretched to the shape: strong where its own numbers are, faint where they repeat."""
    looks = torch.broadcast_to(x, shape).reshape((1,) * (2 - len(shape)) + tuple(shape))
    own = (1,) * (2 - x.dim()) + tuple(x.shape)
    colours = np.array(
        [[tint(colour, OWN if i < own[0] and j < own[1] else GHOST) for j in range(looks.shape[1])]
         for i in range(looks.shape[0])], dtype=object,
    )  # fmt: skip
    table(axes, [[str(number) for number in row] for row in looks.tolist()], colours)
    paper(axes, 3, 4)
    axes.set_title(f"{name}: {tuple(x.shape)}")


def sentence(a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Which axes stretch."""
    stretched = [name for name, own in (("a", a), ("b", b)) if own != shape]
    if not stretched:
        return f"Both have shape {shape}: nothing stretches."
    whose = " and ".join(stretched)
    return (
        f"Aligned at the right, {a} and {b} give {shape}. {whose} stretch{'es' * (len(stretched) == 1)}: the faint "
        "cells are the strong ones once more, with stride 0, and take no memory."
    )
