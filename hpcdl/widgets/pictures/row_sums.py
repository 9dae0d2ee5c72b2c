"""A sum takes an axis away; with keepdim it stays behind, one number long, and the quotient fits."""

import torch
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.cells import paper, table
from hpcdl.widgets.kit.controls import checkbox, choice
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.palette import tint
from hpcdl.widgets.kit.style import Alarm

NUMBERS = torch.tensor([[1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 4.0, 8.0], [5.0, 1.0, 1.0, 1.0]])
X, S, Y = (tint(colour, 0.3) for colour in (style.BLUE, style.ORANGE, style.GREEN))


def explorable() -> Explorable:
    """The shape of x, the axis that goes, and whether it leaves an axis of length 1."""
    controls = {
        "columns": choice("x", [("(3, 4)", 4), ("(3, 3)", 3)], 4),
        "dim": choice("sum over dim", [0, 1], 1),
        "keepdim": checkbox("keepdim=True", False),
    }
    return Explorable(draw, controls, (9.6, 3.5), layout=[["x", "s", "y"]])


def draw(state: dict, axes: dict[str, Axes]) -> str:
    x, dim, keepdim = NUMBERS[:, : state["columns"]], state["dim"], state["keepdim"]
    s = x.sum(dim, keepdim=keepdim)
    _draw(axes["x"], "x", x, X)
    _draw(axes["s"], "s, the sums", s, S)
    if s.dim() == 1 and len(s) != x.shape[1]:
        axes["y"].set_visible(False)
        return Alarm(f"x / s: {tuple(x.shape)} and {tuple(s.shape)}, aligned at the right: 4 meets 3. RuntimeError.")
    y = x / s
    _draw(axes["y"], "y = x / s", y, Y)
    return sentence(dim, s, y)


def _draw(axes: Axes, name: str, x: torch.Tensor, colour: str) -> None:
    """A vector is a row: that is how it meets a matrix."""
    rows = x.view(-1, x.shape[-1])
    table(
        axes, [[f"{number:.3g}" for number in row] for row in rows.tolist()], [[colour] * rows.shape[1]] * len(rows), 11
    )
    paper(axes, 3, 4)
    axes.set_title(f"{name}: {tuple(x.shape)}", fontsize=12)


def sentence(dim: int, s: torch.Tensor, y: torch.Tensor) -> str:
    """What was divided by what."""
    if torch.allclose(y.sum(1), torch.ones(len(y))):
        return f"s has shape {tuple(s.shape)}, a column: each row meets its own sum. The rows of y add up to 1."
    if torch.allclose(y.sum(0), torch.ones(y.shape[1])):
        return f"dim is the axis that goes: with {dim} the rows are added up. Each column of y adds up to 1."
    return Alarm(
        f"No error, and wrong: s, of shape {tuple(s.shape)}, is the sums of the rows, lying down: "
        "each row meets all of them."
    )
