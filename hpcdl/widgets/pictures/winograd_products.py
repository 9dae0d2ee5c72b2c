"""A tile of outputs, product by product: the direct way and Winograd's side by side, and who needs which product."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from hpcdl.kernels.winograd_transforms import RESULT
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import frame, paper, table
from hpcdl.widgets.kit.controls import choice, player, slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint

TAPS = 3
EMPTY, DONE = tint(style.GREY, 0.05), tint(style.SKY, 0.45)
PLUS, MINUS = tint(style.BLUE, 0.55), tint(style.ORANGE, 0.65)
STEPS = 36  # of one product each for m = 2, of four for m = 4


def explorable() -> Explorable:
    """Steps done, size of the tile, and the output whose products are shown."""
    controls = {
        "step": player("steps", 0, 0, STEPS, 300),
        "m": choice("tile of outputs", {"2 x 2: F(2,3)": 2, "4 x 4: F(4,3)": 4}, 2),
        "output": slider("output", 1, 1, 4),
    }
    shown = Explorable(
        draw, controls, figsize=(9.6, 4.6), layout=[["direct", "winograd", "price"]], width_ratios=[1.2, 1.2, 0.9]
    )

    def fit(_change=None) -> None:
        controls["output"].max = controls["m"].value ** 2

    controls["m"].observe(fit, "value")
    return shown


def signs(m: int) -> np.ndarray:
    """A (outputs, products) of +, - and 0: the factor of each of the (m + 2)^2 products in each of the m^2 outputs."""
    a = m + TAPS - 1
    line = np.array(RESULT[m](list(np.eye(a))))  # A^T
    return np.kron(line, line)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    m = state["m"]
    output, done = min(state["output"], m * m) - 1, state["step"] * m * m // 4
    factors = signs(m)
    _direct(axes["direct"], m, done, output)
    _winograd(axes["winograd"], m, done, factors[output])
    _price(axes["price"], m)
    return verdict(m, done, output, factors)


def verdict(m: int, done: int, output: int, factors: Any) -> str:
    """How far both are, in a sentence."""
    direct, winograd = 9 * m * m, factors.shape[1]
    ready = min(done // 9, m * m)
    used = f"output {output + 1} adds up {np.count_nonzero(factors[output])} of the {winograd} products"
    if done == 0:
        return (
            f"Direct: 9 products for each of {m * m} outputs, {direct}. Winograd: {winograd} products for all; {used}."
        )
    if done < winograd:
        return f"After {done} products each: the direct way has {ready} of {m * m} outputs, Winograd none: {used}."
    if done < direct:
        return (
            f"After {done} products: Winograd has all {m * m} outputs since product {winograd}, the direct way {ready}."
        )
    return f"{direct} products against {winograd}: Winograd multiplies {direct / winograd:.4g} times less, and {used}."


def _direct(axes, m: int, done: int, output: int) -> None:
    """m x m outputs of 3 x 3 cells each, filled output by output."""
    side = TAPS * m
    colours = np.full((side, side), EMPTY, dtype=object)
    for product in range(min(done, side * side)):
        which, tap = divmod(product, TAPS * TAPS)
        row, column = TAPS * (which // m) + tap // TAPS, TAPS * (which % m) + tap % TAPS
        colours[row, column] = PLUS if which == output else DONE
    table(axes, [[""] * side] * side, colours)
    for which in range(m * m):
        frame(axes, TAPS * (which // m), TAPS * (which % m), TAPS, TAPS, style.GREY)
    frame(axes, TAPS * (output // m), TAPS * (output % m), TAPS, TAPS)
    paper(axes, side, side)
    axes.set_title(f"Direct: {side * side} products")


def _winograd(axes, m: int, done: int, factors) -> None:
    """The products of the transformed tile; + and - are how the output takes them."""
    a = m + TAPS - 1
    colours, labels = np.full((a, a), EMPTY, dtype=object), [[""] * a for _ in range(a)]
    for product, factor in enumerate(factors):
        row, column = divmod(product, a)
        labels[row][column] = _sign(factor)
        if product < done:
            colours[row, column] = PLUS if factor > 0 else MINUS if factor < 0 else DONE
    table(axes, labels, colours, size=15 if m == 2 else 10)
    paper(axes, a, a)
    axes.set_title(f"Winograd: {a * a} products")


def _sign(factor: float) -> str:
    """What an output does with a product: +, −, times a number, or nothing."""
    if factor == 0:
        return ""
    return ("+" if factor > 0 else "−") + (f"{abs(factor):g}" if abs(factor) != 1 else "")


def _price(axes, m: int) -> None:
    """Multiplications for one output, of the three ways."""
    names, each = ("direct", "F(2,3)", "F(4,3)"), (9.0, 4.0, 2.25)
    colours = [style.BLUE if way == m else style.CONTOUR for way in (1, 2, 4)]
    axes.bar(range(3), each, color=colours, width=0.65)
    for place, value in enumerate(each):
        axes.text(place, value + 0.15, f"{value:g}", ha="center")
    axes.set(xlim=(-0.6, 2.6), ylim=(0, 10), ylabel="products for an output and a channel")
    axes.set_xlabel("algorithm")
    style.ticks(axes.xaxis, range(3), names)
    axes.set_title("The price of one output")
