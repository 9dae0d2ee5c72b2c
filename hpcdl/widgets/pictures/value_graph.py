"""The graph behind a `Value`: numbers flow to the right, gradients to the left, and add up where paths meet."""

from functools import cache

from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from hpcdl.nn.value import Value, ancestors
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.stepper import Stepper
from hpcdl.widgets.kit.style import BLUE, CARD, FAINT, GREY, VERMILLION, Alarm
from hpcdl.widgets.pictures.backprop_steps import short

MOST = 24  # nodes that can still be read in one picture


def explorable() -> Explorable:
    """The backward sweep over a small graph, a node per click."""
    y = example()
    steps = 1 + sum(1 for node in ancestors(y) if node.parents)
    return Explorable(
        lambda state, axes: draw({"value": y, **state}, axes),
        {"step": Stepper("step", 0, 0, steps)},
        figsize=(9.6, 3.8),
    )


def picture(value: Value) -> Explorable:
    """The graph of `value` with the gradients that its nodes hold now."""
    rows = [y for _, y in layout(ancestors(value)).values()] if drawable(value) else [0.0]
    size = (9.6, max(3.8, 2.2 + 1.2 * (max(rows) - min(rows))))  # room for a label above and below every node
    return Explorable(lambda state, axes: draw({"value": value, "step": None}, axes), {}, figsize=size)


def drawable(value: Value) -> bool:
    return len(ancestors(value)) <= MOST


@cache
def example() -> Value:
    """y = σ(w x + w): the weight w serves twice."""
    w, x = Value(0.5, "w"), Value(2.0, "x")
    y = (w * x + w).sigmoid()
    y.name = "y"
    return y


def gradients(value: Value, steps: int | None) -> tuple[dict[Value, float], Value | None]:
    """The gradients after so many steps of the sweep (None: those the nodes hold) and the node visited last.

    The first step sets the root's to 1; each further one lets the next node pass its gradient on to its parents.
    """
    nodes = ancestors(value)
    if steps is None:
        return {node: node.grad for node in nodes}, None
    if steps == 0:
        return {}, None
    grads, visited = {value: 1.0}, value
    for node in [node for node in reversed(nodes) if node.parents][: steps - 1]:
        visited = node
        for parent, slope in zip(node.parents, node.slopes, strict=True):
            grads[parent] = grads.get(parent, 0.0) + slope * grads[node]
    return grads, visited


def draw(state: dict, axes: Axes) -> str:
    """`state`: the root `value`, and `step` of the sweep, or None for the gradients that the nodes hold."""
    value, step = state["value"], state["step"]
    axes.axis("off")
    nodes = ancestors(value)
    if not drawable(value):
        return Alarm(f"This graph has {len(nodes):,} nodes; a picture shows up to {MOST}.")
    grads, visited = gradients(value, step)
    places = layout(nodes)
    rows = [y for _, y in places.values()]
    axes.set(xlim=(-0.55, places[value][0] + 0.55), ylim=(min(rows) - 0.6, max(rows) + 0.75))
    for node in nodes:
        for parent, slope in zip(node.parents, node.slopes, strict=True):
            lit = node is visited and step is not None and step > 1
            _edge(axes, places[parent], places[node], short(slope), VERMILLION if lit else None)
    for node in nodes:
        _node(axes, places[node], node, grads.get(node), active=node is visited)
    return sentence(value, step, grads, visited)


def layout(nodes: list[Value]) -> dict[Value, tuple[float, float]]:
    """Columns by the longest path from a leaf, leaves just before their first use; a column is spread around 0."""
    column: dict[Value, int] = {}
    for node in nodes:
        column[node] = 1 + max((column[parent] for parent in node.parents), default=-1)
    for leaf in [node for node in nodes if not node.parents]:
        column[leaf] = min((column[node] for node in nodes if leaf in node.parents), default=1) - 1
    places: dict[Value, tuple[float, float]] = {}
    for x in set(column.values()):
        members = [node for node in nodes if column[node] == x]
        places |= {node: (float(x), (len(members) - 1) / 2 - i) for i, node in enumerate(members)}
    return places


def _edge(axes, start, end, slope: str, colour: str | None) -> None:
    (x0, y0), (x1, y1) = start, end
    lift = 0.9 if x1 - x0 > 1 else 0.0  # around the nodes between
    curve = Path([start, ((x0 + x1) / 2, (y0 + y1) / 2 + lift), end], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    axes.add_patch(PathPatch(curve, facecolor="none", edgecolor=colour or FAINT, linewidth=2.0, zorder=1))
    along = 0.5 if lift else 0.6  # nearer to the end, where the edges of one node are further apart
    _label(axes, x0 + along * (x1 - x0), y0 + along * (y1 - y0) + lift / 2, f"slope {slope}", colour or GREY)


def _node(axes, place, node: Value, grad: float | None, active: bool) -> None:
    x, y = place
    axes.plot(x, y, "o", ms=40, mfc=CARD, mec=VERMILLION if active else BLUE, mew=3 if active else 1.5, zorder=2)
    axes.text(x, y, short(node.data), ha="center", va="center", weight="bold", parse_math=False)
    name = " = ".join(filter(None, (node.name, node.operation)))
    _label(axes, x, y, name or "constant", BLUE, up=31)
    _label(
        axes, x, y, "grad ?" if grad is None else f"grad {short(grad)}", VERMILLION if grad is not None else GREY, -31
    )


def _label(axes, x: float, y: float, text: str, colour: str, up: float = 0.0) -> None:
    """A text on a small card, `up` points above (x, y)."""
    box = {"facecolor": CARD, "edgecolor": "none", "pad": 1.0}
    place = {"xytext": (0, up), "textcoords": "offset points", "ha": "center", "va": "center"}
    axes.annotate(text, (x, y), color=colour, fontsize=11, bbox=box, zorder=3, parse_math=False, **place)


def sentence(value: Value, step: int | None, grads: dict[Value, float], visited: Value | None) -> str:
    """What the sweep just did."""
    if step is None:
        if not any(grads.values()):
            return Alarm("Every gradient is 0: has backward(...) been called on this value?")
        return "Each node: its value in the circle, and below it the gradient of the last node with respect to it."
    if step == 0:
        return "Forward is done: every node knows its value, and every edge the slope between its ends. Now back."
    if step == 1:
        return "The last node's gradient with respect to itself is 1."
    assert visited is not None  # from step 2 on one is
    own = grads[visited]
    for parent, slope in zip(visited.parents, visited.slopes, strict=True):
        before = grads[parent] - slope * own
        if abs(before) > 1e-12:
            name, sum_ = parent.name or "A parent", f"{short(before)} + {short(own)} · {short(slope)}"
            return f"{name} is reached a second time, so its gradient grows: {sum_} = {short(grads[parent])}."
    return f"The node passes its gradient {short(own)} on to its parents, to each times the slope of the edge."
