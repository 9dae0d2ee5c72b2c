"""One gradient from p processors: each has a shard of the data, the arrows add up to the full gradient."""

from functools import cache

import torch
from matplotlib.axes import Axes

from hpcdl.numerics.descent import mse_grad
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import choice, slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import Alarm

SAMPLES, MOST = 48, 6
WEIGHTED, PLAIN = "weighted by shard size", "plain mean of the shards"

LONG = 0.2  # an arrow from which on there is room for its name


def explorable() -> Explorable:
    """Number of processors, how unequal their shards are, and how their gradients are combined."""
    controls = {
        "p": slider("processors p", 4, 1, MOST),
        "skew": slider("unequal shards", 0.6, 0.0, 1.0, 0.05),
        "rule": choice("combine", [WEIGHTED, PLAIN], WEIGHTED),
    }
    return Explorable(draw, controls, layout=[["data", "arrows"]], width_ratios=[1, 1.1])


@cache
def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows `X = [1, x]`, in order of x, so that shards differ; targets `y`; the weights so far `w`."""
    x = torch.linspace(-1, 2, SAMPLES, dtype=torch.float64)
    noise = torch.randn(SAMPLES, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    y = 0.5 + 0.9 * x + 0.25 * noise
    return torch.stack([torch.ones_like(x), x], dim=1), y, torch.tensor([-0.6, 0.9], dtype=torch.float64)


def shard_sizes(p: int, skew: float) -> list[int]:
    """Sizes that sum to SAMPLES: equal (to a sample) at skew 0, each up to 2.5 times the next at skew 1."""
    shares = torch.tensor([(1 + 1.5 * skew) ** -rank for rank in range(p)], dtype=torch.float64)
    ends = (shares.cumsum(0) / shares.sum() * (SAMPLES - p)).round().long() + torch.arange(
        1, p + 1
    )  # at least one each
    return torch.diff(ends, prepend=torch.zeros(1, dtype=torch.long)).tolist()


def arrows(p: int, skew: float, rule: str) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """Sizes, the arrow `(p, 2)` that each shard contributes, and the full-batch gradient `(2,)`."""
    X, y, w = data()
    sizes = shard_sizes(p, skew)
    gradients = [mse_grad(w, *shard) for shard in zip(X.split(sizes), y.split(sizes), strict=True)]
    weights = [size / SAMPLES if rule == WEIGHTED else 1 / p for size in sizes]
    return sizes, torch.stack([share * g for share, g in zip(weights, gradients, strict=True)]), mse_grad(w, X, y)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    if not 1 <= state["p"] <= SAMPLES:
        raise ValueError(f"p = {state['p']} processors cannot share {SAMPLES} samples: each needs at least one")
    sizes, contributions, full = arrows(**state)
    _data(axes["data"], sizes)
    _arrows(axes["arrows"], contributions, full)
    return verdict(state, sizes, contributions.sum(0), full)


def verdict(state: dict, sizes: list[int], total: torch.Tensor, full: torch.Tensor) -> str:
    """What the arrows add up to, in a sentence."""
    off = float((total - full).norm() / full.norm())
    counts = " + ".join(str(size) for size in sizes)
    if off > 1e-9:
        return Alarm(
            f"The mean of the {state['p']} shard gradients misses the full gradient by {100 * off:.0f} %: "
            f"a shard of {min(sizes)} counts as much as one of {max(sizes)}."
        )
    if state["p"] == 1:
        return f"One processor computes the gradient of all {SAMPLES} samples."
    return f"Each gₖ counts by its share of {counts} = {SAMPLES} samples: the arrows add up to the full gradient."


def _colors(p: int) -> list[str]:
    return [style.CYCLE[rank % len(style.CYCLE)] for rank in range(p)]


def _data(axes, sizes) -> None:
    X, y, w = data()
    ends = torch.tensor(sizes).cumsum(0).tolist()
    for rank, (color, size, end) in enumerate(zip(_colors(len(sizes)), sizes, ends, strict=True)):
        rows = slice(end - size, end)
        axes.plot(X[rows, 1], y[rows], "os^DvX"[rank % 6], color=color, markersize=6)
    axes.plot(X[:, 1], X @ w, color=style.INK, linewidth=1.5)
    axes.annotate("the model so far: $w_0 + w_1 x$", (2.1, -1.0), ha="right")
    axes.set(xlim=(-1.15, 2.15), ylim=(-1.9, 3.2), xlabel="input $x$", ylabel="target $y$")
    axes.set_title("The data, one colour per processor")


def _arrows(axes, contributions, full) -> None:
    tips = contributions.cumsum(0)
    tails = tips - contributions
    step = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 16}
    axes.annotate("", full, (0, 0), arrowprops={**step, "color": style.INK, "linewidth": 5, "alpha": 0.25})
    axes.annotate("full gradient", full / 2, (8, -16), textcoords="offset points", color=style.GREY)
    for rank, (color, tail, tip) in enumerate(zip(_colors(len(tips)), tails, tips, strict=True), start=1):
        axes.annotate("", tip, tail, arrowprops={**step, "color": color, "linewidth": 2.4})
        across = torch.stack([tail[1] - tip[1], tip[0] - tail[0]])  # a quarter turn: labels stand outside the chain
        beside = (-14 * across / across.norm()).tolist()
        if (tip - tail).norm() > LONG:
            axes.annotate(f"$g_{rank}$", (tail + tip) / 2, beside, textcoords="offset points", ha="center", va="center")
    if (tips[-1] - full).norm() > 1e-9:
        axes.plot(*torch.stack([tips[-1], full]).T, ":", color=style.VERMILLION, linewidth=2)
    axes.plot(0, 0, "o", color=style.INK, markersize=6)
    axes.set(xlim=(-2.9, 0.4), ylim=(-3.4, 0.8))
    axes.set(xlabel=r"$\partial L / \partial w_0$", ylabel=r"$\partial L / \partial w_1$")
    axes.set_title("Shard gradients, tip to tail")
