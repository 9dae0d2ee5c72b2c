"""The 32 bits of a float, and what a second look makes of them: the same bits, or the same number."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import paper, table
from hpcdl.widgets.kit.controls import choice
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint

NUMBERS = (0.7, 1.0, -1.0, 0.1, 3.14159265, 100.0, 65537.0, 16777217.0, -0.0)
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
FIELDS = {torch.float32: (1, 8, 23), torch.bfloat16: (1, 8, 7), torch.float64: (1, 11, 52)}  # sign, exponent, mantissa
COLOURS = (tint(style.VERMILLION, 0.4), tint(style.ORANGE, 0.35), tint(style.BLUE, 0.3))
WHOLE = tint(style.GREEN, 0.3)
NAMES = ("sign", "exponent", "mantissa", "whole number")
NAMED = tuple(zip((0.2, 2.2, 5.5, 8.7), NAMES, (*COLOURS, WHOLE), strict=True))  # gaps of one bit between the words
LOOKS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "x.view(torch.int32)": lambda x: x.view(torch.int32),
    "x.to(torch.int32)": lambda x: x.to(torch.int32),
    "x.view(torch.int32) >> 16": lambda x: x.view(torch.int32) >> 16,
    "x.to(torch.bfloat16)": lambda x: x.to(torch.bfloat16),
    "x.to(torch.float64)": lambda x: x.to(torch.float64),
}


class Look(NamedTuple):
    """A number as it is stored: its bits, the highest first, with a colour each."""

    bits: str
    colours: list[str]


def explorable() -> Explorable:
    """A number, and the second look at it."""
    controls = {"x": choice("x =", NUMBERS, 0.7), "look": choice("y =", list(LOOKS), "x.view(torch.int32)")}
    return Explorable(draw, controls, (9.6, 3.4))


def stored(x: torch.Tensor) -> Look:
    size = x.element_size()
    code = int(x.view(INTEGERS[size]).item()) % (1 << 8 * size)
    fields = FIELDS.get(x.dtype)
    colours = [colour for colour, n in zip(COLOURS, fields, strict=True) for _ in range(n)] if fields else [WHOLE] * 32
    return Look(f"{code:0{8 * size}b}", colours)


def draw(state: dict, axes: Axes) -> str:
    x = torch.tensor(state["x"], dtype=torch.float32)
    y = LOOKS[state["look"]](x)
    _draw(axes, 0.9, f"x, float32: {_exactly(x)}", stored(x))
    _draw(axes, 3.6, f"y = {state['look']}: {_exactly(y)}", stored(y))
    for place, name, colour in NAMED:
        axes.text(place, 7.2, name, fontsize=10, backgroundcolor=colour)
    paper(axes, 7.4, 32)
    return sentence(x, y, state["look"])


def _exactly(x: torch.Tensor) -> str:
    return f"{x.item():.17g}" if x.is_floating_point() else f"{x.item():,}"


def _draw(axes: Axes, top: float, title: str, look: Look) -> None:
    """The bits in rows of 32, under their title."""
    axes.text(0, top - 0.3, title, weight="bold", fontsize=12, parse_math=False)
    for row in range(0, len(look.bits), 32):
        bits, colours = look.bits[row : row + 32], look.colours[row : row + 32]
        _strip(axes, bits, colours, top + row / 32 * 1.1)


def _strip(axes: Axes, bits: str, colours: list[str], top: float) -> None:
    table(axes, [list(bits)], [colours], size=10, top=top)


def sentence(x: torch.Tensor, y: torch.Tensor, look: str) -> str:
    """What was kept: the bits or the number."""
    if look == "x.view(torch.int32)":
        return f"The same 32 bits, read as a whole number: {y.item():,}. Nothing is computed, nothing is copied."
    if look == "x.view(torch.int32) >> 16":
        return f"The upper 16 bits have moved down, copies of the sign move in: {y.item():,}."
    if look == "x.to(torch.int32)":
        return f"The number is converted: {x.item():.9g} becomes {y.item():,}, in other bits."
    kept = "exactly" if y.item() == x.item() else "rounded to the nearest number there is"
    return f"The number is converted, {kept}: {y.element_size()} bytes instead of 4."
