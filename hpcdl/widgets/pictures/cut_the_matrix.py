"""Layers split over ranks: which rank holds which part of each matrix, and what ranks must send each other.

Sources: Shoeybi et al. 2019, "Megatron-LM" (column and row layers); Korthikanti et al. 2022, "Reducing activation
recomputation in large transformer models" (the sequence split between them).
"""

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from hpcdl.widgets.kit import palette, style, units
from hpcdl.widgets.kit.controls import choice, slider, stops
from hpcdl.widgets.kit.explorable import Explorable

BYTES = 4  # of a number
NAMES = {
    "column": "by outputs (column layer)",
    "row": "by inputs (row layer)",
    "both": "two layers: column, then row",
    "sequence": "the same, tokens cut outside",
}


class Matrix(NamedTuple):
    """A matrix in the picture: `cut` along its "rows" or "columns", or "" (whole on every rank)."""

    name: str
    rows: str  # "n" tokens, "d" numbers, or "4d"
    columns: str
    cut: str
    weights: bool = False


# The content of a row of the picture, with what is sent forward between two matrices.
LAYERS: dict[str, tuple[Matrix | str, ...]] = {
    "column": (
        Matrix("x", "n", "d", ""), Matrix("Wᵀ", "d", "4d", "columns", True), Matrix("y", "n", "4d", "columns"),
    ),
    "row": (
        Matrix("x", "n", "4d", "columns"), Matrix("Wᵀ", "4d", "d", "rows", True),
        "all-reduce", Matrix("y", "n", "d", ""),
    ),
    "both": (
        Matrix("x", "n", "d", ""), Matrix("W₁ᵀ", "d", "4d", "columns", True), Matrix("h", "n", "4d", "columns"),
        Matrix("W₂ᵀ", "4d", "d", "rows", True), "all-reduce", Matrix("y", "n", "d", ""),
    ),
    "sequence": (
        Matrix("x", "n", "d", "rows"), "all-gather", Matrix("W₁ᵀ", "d", "4d", "columns", True),
        Matrix("h", "n", "4d", "columns"), Matrix("W₂ᵀ", "4d", "d", "rows", True), "reduce-scatter",
        Matrix("y", "n", "d", "rows"),
    ),
}  # fmt: skip

# Tensors of n x d numbers that each rank sends (p - 1)/p of: an all-reduce is two, a gather or a scatter of sums one.
FORWARD = {"column": 0, "row": 2, "both": 2, "sequence": 2}
BACKWARD = {"column": 2, "row": 0, "both": 2, "sequence": 3}  # if tokens are split, x is gathered again for dW


def explorable() -> Explorable:
    """Controls: how the layers are split, over how many ranks, and how large they are."""
    controls = {
        "how": choice("cut", [(label, how) for how, label in NAMES.items()], "column"),
        "p": slider("ranks p", 4, 1, 8),
        "n": stops("tokens n", [(f"{n:,}", n) for n in (128, 512, 2048, 8192)], 2048),
        "d": stops("numbers d", [(f"{d:,}", d) for d in (256, 1024, 4096, 12288)], 1024),
    }
    return Explorable(draw, controls, (9.6, 4.6), layout=[["layers", "bytes"]], width_ratios=[1.75, 1])


def volumes(how: str, p: int, n: int, d: int) -> dict[str, float]:
    """Return the bytes on each rank: weights, kept activations, and data sent forward and backward."""
    length = {"n": n, "d": d, "4d": 4 * d}
    found = {"weights": 0.0, "activations": 0.0}
    for matrix in (part for part in LAYERS[how] if isinstance(part, Matrix)):
        share = BYTES * length[matrix.rows] * length[matrix.columns] / (p if matrix.cut else 1)
        found["weights" if matrix.weights else "activations"] += share
    message = BYTES * n * d * (p - 1) / p
    return found | {"sent forward": FORWARD[how] * message, "sent backward": BACKWARD[how] * message}


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    how, p, n, d = (state[key] for key in ("how", "p", "n", "d"))
    _draw_layers(axes["layers"], how, p)
    mine, alone = volumes(how, p, n, d), volumes(how, 1, n, d)
    _draw_bytes(axes["bytes"], mine, alone)
    axes["layers"].set_title(f"{NAMES[how].capitalize()}, {p} rank{'s' * (p > 1)}")
    if p == 1:
        return f"One rank holds {units.nbytes(mine['weights'])} of weights and sends nothing."
    shares = {kind: f"{100 * mine[kind] / alone[kind]:.3g} %" for kind in ("weights", "activations")}
    return (
        f"Each rank holds {shares['weights']} of the weights and {shares['activations']} of the activations; "
        f"it sends {units.nbytes(mine['sent forward'])} forward and {units.nbytes(mine['sent backward'])} backward."
    )


WIDTHS = {"n": 0.8, "d": 0.55, "4d": 1.3}  # of a matrix in the picture; n has a fixed width, whatever the sliders say


def _draw_layers(axes: Axes, how: str, p: int) -> None:
    shades = [palette.tint(style.BLUE, 1.0 - 0.8 * rank / max(1, p - 1)) for rank in range(p)]
    left, top = 0.0, 0.0
    for item in LAYERS[how]:
        if isinstance(item, str):
            axes.text(
                left + 0.04, 0.0, f"{item} →", ha="left", va="center", fontsize=9, color=style.ORANGE, rotation=90
            )
            left += 0.32
            continue
        high, wide = WIDTHS[item.rows], WIDTHS[item.columns]
        for rank in range(p if item.cut else 1):
            _box(axes, left, wide, high, item.cut, rank, p, shades[rank] if item.cut else style.CONTOUR)
        axes.text(left + wide / 2, high / 2 + 0.06, item.name, ha="center", va="bottom", fontsize=11)
        left, top = left + wide + 0.22, max(top, high)
    axes.text(
        0.0,
        -1.0,
        "grey: whole on every rank; blue: a shade for each rank's part. Lines at the right: one rank alone",
        fontsize=9,
        color=style.GREY,
    )
    axes.set(xlim=(-0.05, max(left, 3.0)), ylim=(-1.1, 1.1))
    axes.set_axis_off()


def _box(axes: Axes, left: float, wide: float, high: float, cut: str, rank: int, p: int, colour: str) -> None:
    """Draw a rank's part of a matrix centred at height 0, or the whole matrix."""
    x0, x1, y0, y1 = left, left + wide, high / 2, -high / 2
    if cut == "columns":
        x0, x1 = left + wide * rank / p, left + wide * (rank + 0.94) / p
    elif cut == "rows":
        y0, y1 = high / 2 - high * rank / p, high / 2 - high * (rank + 0.94) / p
    corners = [[(x0, y0), (x1, y0), (x1, y1), (x0, y1)]]
    axes.add_collection(PolyCollection(corners, facecolors=colour, linewidths=0))


def _draw_bytes(axes: Axes, mine: dict[str, float], alone: dict[str, float]) -> None:
    kinds, largest = list(mine), max([*mine.values(), *alone.values()])
    for place, kind in enumerate(kinds):
        colour = style.ORANGE if kind.startswith("sent") else style.BLUE
        axes.barh(place, mine[kind] / largest, height=0.5, color=colour)
        axes.plot([alone[kind] / largest] * 2, [place - 0.36, place + 0.36], color=style.GREY, linewidth=2)
        axes.text(0.02, place - 0.42, f"{kind}: {units.nbytes(mine[kind])}", fontsize=9, va="bottom")
    axes.set(xlim=(0, 1.04), ylim=(len(kinds) - 0.4, -0.9), title="On each rank")
    style.ticks(axes.yaxis, [], [])
    style.ticks(axes.xaxis, [], [])
