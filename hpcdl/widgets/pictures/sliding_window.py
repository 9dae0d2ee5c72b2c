"""A window slides over an image; each place fills a column of the im2col matrix and a row of the Toeplitz matrix."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import frame, paper, table
from hpcdl.widgets.kit.controls import player, slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint

PIXELS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"  # the lecture's letters: no I
WEIGHTS = "αβγδεζηθκ"
GAP = 1.1  # rows between image and outputs
EMPTY, ZERO = tint(style.GREY, 0.05), tint(style.GREY, 0.14)
PIXEL, WEIGHT, OUTPUT = tint(style.SKY, 0.35), tint(style.ORANGE, 0.4), tint(style.GREEN, 0.4)


class Sliding(NamedTuple):
    """An image of size x size pixels, a window of window x window weights that moves by stride."""

    size: int
    window: int
    stride: int

    @property
    def across(self) -> int:
        """Places of the window in a row of places."""
        return (self.size - self.window) // self.stride + 1

    def corner(self, place: int) -> tuple[int, int]:
        """Row and column of the window's first pixel."""
        p, q = divmod(place, self.across)
        return p * self.stride, q * self.stride

    def seen(self, place: int) -> list[int]:
        """The pixels under the window, by their number in the unrolled image."""
        row, column = self.corner(place)
        return [(row + i) * self.size + column + j for i in range(self.window) for j in range(self.window)]

    def output(self, place: int) -> str:
        """The name of an output; those of the lecture's example are P, Q, R, S."""
        return "PQRS"[place] if self == (3, 2, 1) else f"y{place + 1}"


def explorable() -> Explorable:
    """Place of the window, size of the image, size of the window, stride; it begins with the lecture's example."""
    controls = {
        "step": player("place", 1, 0, 4, 900),
        "size": slider("image", 3, 3, 5),
        "window": slider("window", 2, 1, 3),
        "stride": slider("stride", 1, 1, 2),
    }
    shown = Explorable(
        draw,
        controls,
        figsize=(9.6, 4.8),
        layout=[["window", "columns", "matrix"]],
        width_ratios=[1, 1.45, 2.15],
    )

    def fit(_change=None) -> None:
        places = _sliding(shown.state).across ** 2
        for part in controls["step"].children:
            part.max = places

    for name in ("size", "window", "stride"):
        controls[name].observe(fit, "value")
    return shown


def _sliding(state) -> Sliding:
    return Sliding(state["size"], state["window"], state["stride"])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    sliding = _sliding(state)
    places = sliding.across**2
    done = min(state["step"], places)
    _image(axes["window"], sliding, done)
    _outputs(axes["window"], sliding, done)
    _columns(axes["columns"], sliding, done)
    _matrix(axes["matrix"], sliding, done)
    return verdict(sliding, done, places)


def verdict(sliding: Sliding, done: int, places: int) -> str:
    """What this place of the window adds, in a sentence."""
    copies, pixels, weights = places * sliding.window**2, sliding.size**2, sliding.window**2
    if done == 0:
        return f"{places} places for the window. Press play, or move the slider: each place fills a column and a row."
    terms = " + ".join(WEIGHTS[i] + PIXELS[pixel] for i, pixel in enumerate(sliding.seen(done - 1)))
    said = f"Place {done} of {places}: {sliding.output(done - 1)} = {terms}."
    if done < places:
        return said
    share = f"{places * weights} of {places * pixels}"
    return f"{said} Now im2col holds {copies} copies of {pixels} pixels, and T has {share} numbers that are not zero."


def _image(axes, sliding: Sliding, done: int) -> None:
    n = sliding.size
    over = dict(zip(sliding.seen(done - 1), WEIGHTS, strict=False)) if done else {}
    labels = [[over.get(i * n + j, "") + PIXELS[i * n + j] for j in range(n)] for i in range(n)]
    colours = [[PIXEL if i * n + j in over else EMPTY for j in range(n)] for i in range(n)]
    table(axes, labels, colours, size=15 - n)
    if done:
        frame(axes, *sliding.corner(done - 1), sliding.window, sliding.window)
    axes.set_title("Image, window")


def _outputs(axes, sliding: Sliding, done: int) -> None:
    """The outputs, below the image."""
    n, top = sliding.across, sliding.size + GAP
    names = [[sliding.output(i * n + j) if i * n + j < done else "" for j in range(n)] for i in range(n)]
    colours = [[OUTPUT if i * n + j < done else EMPTY for j in range(n)] for i in range(n)]
    table(axes, names, colours, size=12 - sliding.size / 2, top=top)
    if done:
        p, q = divmod(done - 1, n)
        frame(axes, top + p, q, 1, 1)
    axes.text(0, top - 0.25, "Outputs", weight="bold", fontsize=13)
    paper(axes, top + n, sliding.size)


def _columns(axes, sliding: Sliding, done: int) -> None:
    rows, places = sliding.window**2, sliding.across**2
    labels, colours = [[""] * places for _ in range(rows)], np.full((rows, places), EMPTY, dtype=object)
    for place in range(done):
        for row, pixel in enumerate(sliding.seen(place)):
            labels[row][place], colours[row, place] = PIXELS[pixel], PIXEL
    table(axes, labels, colours, size=_fitting(270, 330, rows, places))
    if done:
        frame(axes, 0, done - 1, rows, 1)
    paper(axes, rows, places)
    axes.set_title(f"im2col: {rows} x {places}")


def _matrix(axes, sliding: Sliding, done: int) -> None:
    places, pixels = sliding.across**2, sliding.size**2
    labels, colours = [[""] * pixels for _ in range(places)], np.full((places, pixels), EMPTY, dtype=object)
    for place in range(done):
        colours[place] = ZERO
        for weight, pixel in enumerate(sliding.seen(place)):
            labels[place][pixel], colours[place, pixel] = WEIGHTS[weight], WEIGHT
    table(axes, labels, colours, size=_fitting(400, 330, places, pixels))
    if done:
        frame(axes, done - 1, 0, 1, pixels)
    paper(axes, places, pixels)
    axes.set_title(f"Toeplitz matrix T: {places} x {pixels}, grey is 0")


def _fitting(width: float, height: float, rows: int, columns: int) -> float:
    """The size of letters that fit cells in so many pixels, in points."""
    return min(14.0, 0.45 * min(width / columns, height / rows))
