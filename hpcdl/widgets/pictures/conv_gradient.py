"""Back through a convolution: which outputs' gradients add up to that of a pixel, and which to that of a weight.

Both sums are convolutions: the flipped window slides over dy in a ring of zeros, and dy itself slides over x.
"""

from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import frame, paper, table
from hpcdl.widgets.kit.controls import slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint

PIXELS, WEIGHTS, OUTPUTS = "ABCDEFGHJ", "αβγδ", "PQRS"  # the lecture's example: 3 x 3, 2 x 2, 2 x 2
SIZE, WINDOW, PLACES = 3, 2, 2
RING = WINDOW - 1  # of zeros round dy
EMPTY, ZERO = tint(style.GREY, 0.05), tint(style.GREY, 0.14)
PIXEL, WEIGHT, OUTPUT = tint(style.SKY, 0.35), tint(style.ORANGE, 0.4), tint(style.GREEN, 0.4)

Cell = tuple[int, int]


def explorable() -> Explorable:
    """A pixel of the lecture's image, A to J, and a weight of its window, α to δ, by number."""
    controls = {"pixel": slider("pixel", 1, 1, len(PIXELS)), "weight": slider("weight", 1, 1, len(WEIGHTS))}
    layout = [["ringed", "dx", "x", "dw"]]
    return Explorable(draw, controls, (9.6, 3.1), layout=layout, width_ratios=[4, 3, 3, 2])


def to_pixel(pixel: int) -> list[tuple[int, int]]:
    """(weight, output) of every product that pixel number `pixel` is in: output (p, q) saw it by weight (h-p, v-q)."""
    h, v = divmod(pixel, SIZE)
    pairs = ((h - p, v - q, p, q) for p in range(PLACES) for q in range(PLACES))
    inside = range(WINDOW)
    return [(i * WINDOW + j, p * PLACES + q) for i, j, p, q in pairs if i in inside and j in inside]


def to_weight(weight: int) -> list[tuple[int, int]]:
    """(pixel, output) of every product that weight number `weight` is in: for output (p, q) it met (p+i, q+j)."""
    i, j = divmod(weight, WINDOW)
    return [((p + i) * SIZE + q + j, p * PLACES + q) for p in range(PLACES) for q in range(PLACES)]


def draw(state: dict, axes: dict[str, Axes]) -> str:
    pixel, weight = state["pixel"] - 1, state["weight"] - 1
    _ringed(axes["ringed"], divmod(pixel, SIZE))
    _result(axes["dx"], "dx", PIXELS, SIZE, pixel, PIXEL)
    _image(axes["x"], divmod(weight, WINDOW))
    _result(axes["dw"], "dw", WEIGHTS, WINDOW, weight, WEIGHT)
    return sentence(pixel, weight)


def sentence(pixel: int, weight: int) -> str:
    """Both sums, term by term."""
    back = " + ".join(f"{WEIGHTS[i]} d{OUTPUTS[o]}" for i, o in to_pixel(pixel))
    met = " + ".join(f"{PIXELS[i]} d{OUTPUTS[o]}" for i, o in to_weight(weight))
    return f"d{PIXELS[pixel]} = {back}. d{WEIGHTS[weight]} = {met}."


def _ringed(axes: Axes, corner: Cell) -> None:
    """dy in its ring of zeros, and the flipped window at the place of a pixel."""
    n = PLACES + 2 * RING
    dy = {(p + RING, q + RING): f"d{OUTPUTS[p * PLACES + q]}" for p in range(PLACES) for q in range(PLACES)}
    flipped = dict(zip(_under(corner, WINDOW), reversed(WEIGHTS), strict=True))
    cells = [[(i, j) for j in range(n)] for i in range(n)]
    labels = [[f"{flipped.get(at, '')} {dy.get(at, '0')}".strip() for at in row] for row in cells]
    table(axes, labels, [[_colour(at in flipped, at in dy) for at in row] for row in cells], size=12)
    _finish(axes, "dy, window flipped", corner, WINDOW, n)


def _colour(is_seen: bool, is_output: bool) -> str:
    if not is_output:
        return ZERO
    return OUTPUT if is_seen else EMPTY


def _image(axes: Axes, corner: Cell) -> None:
    """The image, and dy as the window at the place of a weight."""
    over = dict(zip(_under(corner, PLACES), OUTPUTS, strict=True))
    cells = [[(i, j) for j in range(SIZE)] for i in range(SIZE)]
    labels = [[PIXELS[i * SIZE + j] + (f" d{over[i, j]}" if (i, j) in over else "") for i, j in row] for row in cells]
    table(axes, labels, [[OUTPUT if at in over else EMPTY for at in row] for row in cells], size=12)
    _finish(axes, "x, window dy", corner, PLACES, SIZE)


def _under(corner: Cell, size: int) -> list[Cell]:
    """The cells under a window of size x size, row by row."""
    return [(corner[0] + i, corner[1] + j) for i in range(size) for j in range(size)]


def _result(axes: Axes, title: str, names: str, n: int, chosen: int, colour: str) -> None:
    labels = [[f"d{names[i * n + j]}" for j in range(n)] for i in range(n)]
    colours = [[colour if i * n + j == chosen else EMPTY for j in range(n)] for i in range(n)]
    table(axes, labels, colours, size=12)
    _finish(axes, title, divmod(chosen, n), 1, n)


def _finish(axes: Axes, title: str, corner: Cell, framed: int, n: int) -> None:
    frame(axes, *corner, framed, framed)
    paper(axes, n, n)
    axes.set_anchor("N")
    axes.set_title(title)
