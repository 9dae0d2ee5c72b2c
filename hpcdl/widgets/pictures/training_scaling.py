"""The picture of how a training scales: speed and efficiency over ranks, as measured and as the cost model predicts."""

from typing import Any

from matplotlib.axes import Axes

from hpcdl.machine import cores
from hpcdl.widgets.kit import style


def draw(state: dict, axes: dict[str, Axes]) -> str:
    """Draw `{"points": [Point, ...], "weak": bool}` on axes "speed" and "efficiency"."""
    points, kind = state["points"], "Weak" if state["weak"] else "Strong"
    ranks = [point.p for point in points]
    looks: dict[str, dict[str, Any]] = {
        "measured": {"color": style.BLUE, "marker": "o", "label": "measured"},
        "predicted": {"color": style.ORANGE, "marker": "x", "linestyle": "--", "label": "cost model"},
    }
    for name, look in looks.items():
        speeds = [point.images / getattr(point, name) / 1000 for point in points]
        axes["speed"].plot(ranks, speeds, **look)
        shares = [
            100 * speed / (p * one) for speed, p, one in zip(speeds, ranks, speeds[:1] * len(speeds), strict=True)
        ]
        axes["efficiency"].plot(ranks, shares, **look)
    fastest = max((point.images / min(point[2:]) / 1000 for point in points), default=1.0)
    axes["speed"].set(xlabel="ranks", ylabel="thousand images/s, all ranks", title=f"{kind} scaling: speed")
    axes["efficiency"].set(xlabel="ranks", ylabel="efficiency, %", title="Speed per rank, of one rank's")
    axes["efficiency"].axhline(100, color=style.GREY, linewidth=0.8)
    axes["speed"].set_ylim(0, 1.25 * fastest)
    axes["efficiency"].set_ylim(0, 130)
    for axis in axes.values():
        axis.set_xlim(0.8, max([*ranks, 2]) + 0.2)
        style.ticks(axis.xaxis, ranks or [1, 2], [str(p) for p in ranks or [1, 2]])
        if points:
            axis.legend(loc="lower left")
    return sentence(state)


def sentence(state: dict) -> str:
    """What was measured last, and the limit that is not in the messages."""
    if not state["points"]:
        return "Measuring the messages, then 1 rank ..."
    point, first = state["points"][-1], state["points"][0]
    efficiency = (point.images / point.measured) / (point.p * first.images / first.measured)
    short = f" {point.p} ranks share {cores()} cores, so they take turns." if point.p > cores() else ""
    return (
        f"{point.p} rank{'s' * (point.p > 1)}, {point.images} images a step: {1e3 * point.measured:.1f} ms, predicted "
        f"{1e3 * point.predicted:.1f} ms; efficiency {100 * efficiency:.0f} %.{short}"
    )
