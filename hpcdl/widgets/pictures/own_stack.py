"""The stack of lab `own_stack`: the bricks of a data-parallel training, whose they are, and how many lines each has.

A mark is a line of code: no blank line, comment or docstring. Before a training the lines are those of the library's
bricks; afterwards those that a witness on the ranks saw run.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from hpcdl.training.own_stack.bricks import BRICKS
from hpcdl.widgets.kit import palette, style
from hpcdl.widgets.kit.controls import choice, slider
from hpcdl.widgets.kit.explorable import Explorable

if TYPE_CHECKING:
    from hpcdl.training.own_stack.lines import Tally

ROWS = (("step",), ("tape", "momentum", "buckets"), ("convolution", "rounding", "ring"))  # from the top
WIDTH = 12.0  # of the wall; a course of bricks is 1 high
INDENT = 0.007  # the words begin where the caption does
SPACE = 0.18  # of a mark and the gap beside it; less where a brick has more lines than fit in two rows


class Shown(NamedTuple):
    """Return the text on a brick."""

    lines: int
    is_yours: bool
    calls: dict[str, int]  # by function; empty before a training


def explorable(lines: "Tally | None" = None) -> Explorable:
    """The brick that is explained; without the `lines` of a training, also how many exercises are solved."""
    controls = {"brick": choice("brick", [(name, name) for name in BRICKS], "tape")}
    if lines is None:
        controls["solved"] = slider("exercises solved", 0, 0, len(BRICKS))
    wall = None if lines is None else seen(lines)
    return Explorable(
        lambda state, axes: draw(state, axes, wall),
        controls,
        (9.6, 4.8),
        layout=[["wall"], ["words"]],
        height_ratios=[5, 1],
    )


def imagined(solved: int) -> dict[str, Shown]:
    """Return the library's bricks; the first `solved` are called yours."""
    return {name: Shown(brick.lines, k < solved, {}) for k, (name, brick) in enumerate(BRICKS.items())}


def seen(lines: "Tally") -> dict[str, Shown]:
    """What ran in a training, by brick."""
    return {
        name: Shown(
            lines.yours.get(name, 0) + lines.lent.get(name, 0),
            name in lines.yours and name not in lines.lent,
            {f: lines.calls[f] for f in brick.functions if f in lines.calls},
        )
        for name, brick in BRICKS.items()
    }


def draw(state: dict, axes: Mapping[str, Axes], wall: dict[str, Shown] | None = None) -> str:
    wall = wall or imagined(state["solved"])
    _draw_wall(axes["wall"], wall, state["brick"])
    brick = BRICKS[state["brick"]]
    words = axes["words"]
    words.set_axis_off()
    words.text(INDENT, 0.75, "   ".join(brick.functions), family="monospace", fontsize=10.5, va="center")
    words.text(INDENT, 0.1, _about(state["brick"], wall[state["brick"]]), fontsize=10.5, va="center")
    own = sum(shown.lines for shown in wall.values() if shown.is_yours)
    lent = [name for name, shown in wall.items() if not shown.is_yours]
    total = sum(shown.lines for shown in wall.values())
    if not lent:
        return f"{total} lines, all yours: nothing is lent."
    return f"{own} of {total} lines are yours. Lent: {', '.join(lent)}."


def _about(name: str, shown: Shown) -> str:
    said = f"{BRICKS[name].does}."
    said = said[0].upper() + said[1:]
    if shown.calls:
        return said + " Called on rank 0: " + ", ".join(f"{count:,}" for count in shown.calls.values()) + " times."
    if BRICKS[name].earlier:
        return said + f" Yours since lab {BRICKS[name].earlier[0].replace('.', ': ')}?"
    return said


def _draw_wall(axes: Axes, wall: dict[str, Shown], chosen: str) -> None:
    for row, names in enumerate(ROWS):
        width = WIDTH / len(names)
        for column, name in enumerate(names):
            _draw_brick(axes, (column * width, -row), width, name, wall[name], chosen)
    axes.add_patch(Rectangle((0.06, -2.6), WIDTH - 0.12, 0.5, facecolor=style.FAINT, edgecolor="none"))
    axes.text(WIDTH / 2, -2.35, "the machine: messages and torch's arithmetic", ha="center", va="center", fontsize=10.5)
    axes.set(xlim=(-0.05, WIDTH + 0.05), ylim=(-2.65, 1.02))
    axes.set_axis_off()


def _draw_brick(axes: Axes, corner: tuple[float, float], width: float, name: str, shown: Shown, chosen: str) -> None:
    x, y = corner
    colour = style.BLUE if shown.is_yours else style.GREY
    edge, thick = style.CARD, 1.0
    if name == chosen:
        edge, thick = style.VERMILLION, 3.0
    elif name in BRICKS[chosen].calls:
        edge, thick = style.INK, 2.0
    face = palette.tint(colour, 0.35 if shown.is_yours else 0.15)
    axes.add_patch(Rectangle((x + 0.06, y + 0.06), width - 0.12, 0.88, facecolor=face, edgecolor=edge, linewidth=thick))
    axes.text(x + 0.25, y + 0.72, name, fontsize=12, weight="bold", va="center")
    whose = "yours" if shown.is_yours else "lent"
    right = x + width - 0.25
    axes.text(right, y + 0.72, f"{shown.lines} lines, {whose}", fontsize=10.5, va="center", ha="right")
    across = max(int((width - 0.5) / SPACE), -(-shown.lines // 2))
    step = (width - 0.5) / across
    for k in range(shown.lines):
        left, low = x + 0.27 + k % across * step, y + 0.38 - 0.2 * (k // across)
        axes.add_patch(Rectangle((left, low), 0.7 * step, 0.1, facecolor=colour, edgecolor="none"))
