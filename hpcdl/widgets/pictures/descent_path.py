"""Descent on a contour map: the path of the weights, and how far above the minimum they are."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from hpcdl.numerics.descent import descend, max_stable_lr, minibatch_grad, mse_grad, mse_hessian
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import player, slider, stops
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import Alarm

SAMPLES, STEPS = 32, 60
SEED = 2  # of the data and of the mini-batches: the same picture for everybody
REACH = 2.6  # half the width of the map
LEVELS = (0.05, 0.3, 1, 2.2, 4, 6.5, 10, 15, 22, 31)  # of the loss above its minimum, one contour each


def explorable() -> Explorable:
    """Learning rate, momentum, batch size and number of steps of a descent over two weights."""
    sizes = [2**k for k in range(6)]
    controls = {
        "lr": slider("learning rate", 0.1, 0.0, 1.0, 0.01),
        "beta": slider("momentum β", 0.0, 0.0, 0.99, 0.01),
        "batch_size": stops("batch size", sizes, SAMPLES),
        "steps": player("steps", 30, 0, STEPS),
    }
    return Explorable(draw, controls, layout=[["map", "loss"]], width_ratios=[1.05, 1])


@cache
def problem() -> SimpleNamespace:
    """A line `y = w_0 + w_1 x` through noisy points: its data, minimum, curvature and contours."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.linspace(-0.5, 2.5, SAMPLES, dtype=torch.float64)
    X = torch.stack([torch.ones_like(x), x], dim=1)
    y = X @ torch.tensor([0.5, 1.0], dtype=torch.float64)
    y = y + 0.7 * torch.randn(SAMPLES, generator=generator, dtype=torch.float64)
    best, H = torch.linalg.lstsq(X, y).solution, mse_hessian(X)
    start = best + torch.tensor([-2.2, -0.9], dtype=torch.float64)
    return SimpleNamespace(X=X, y=y, best=best, H=H, contours=contours(best, H), start=start)


def contours(best: torch.Tensor, H: torch.Tensor) -> list:
    """The ellipses `(w - best) . H (w - best) / 2 = level` around the minimum, each `(points, 2)`."""
    angle = torch.linspace(0, 2 * torch.pi, 97, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()])
    unit = torch.linalg.solve_triangular(torch.linalg.cholesky(H).T, circle, upper=True).T
    return [(best + (2 * level) ** 0.5 * unit).numpy() for level in LEVELS]


def walk(lr: float, beta: float, batch_size: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights `(steps + 1, 2)` and the loss above its minimum `(steps + 1,)` after every step."""
    data, generator = problem(), torch.Generator().manual_seed(SEED)
    if batch_size < SAMPLES:
        grad = minibatch_grad(data.X, data.y, batch_size, generator)
    else:
        grad = lambda w: mse_grad(w, data.X, data.y)  # noqa: E731 - two ways to the same name
    path = descend(grad, data.start, lr, steps, beta)
    offset = path - data.best
    return path, 0.5 * ((offset @ data.H) * offset).sum(dim=1)


def draw(state: dict, axes: dict[str, Axes]) -> str:
    data = problem()
    path, excess = walk(**state)
    seen = int(((path - data.best).abs().amax(dim=1) < 40 * REACH).long().cumprod(0).sum())  # before it leaves the map
    sentence = verdict(state, excess)
    color = style.VERMILLION if isinstance(sentence, Alarm) else style.BLUE
    _map(axes["map"], data, path[:seen], color)
    _curve(axes["loss"], excess, color)
    return sentence


def _map(axes, data, path, color) -> None:
    axes.add_collection(LineCollection(data.contours, colors=style.CONTOUR, linewidths=1))
    axes.plot(*path.T, "o-", color=color, markersize=4, linewidth=1.5)
    axes.plot(*path[0], "o", color=style.INK, markersize=8)
    axes.annotate("start", path[0], (-6, -18), textcoords="offset points")
    axes.plot(*data.best, "*", color=style.VERMILLION, markersize=16, markeredgecolor=style.CARD)
    (left, right), (low, high) = ((float(c) - REACH, float(c) + REACH) for c in data.best)
    axes.set(xlim=(left, right), ylim=(low, high), xlabel="weight $w_0$", ylabel="weight $w_1$")
    axes.set_title("The path downhill, seen from above")
    axes.grid(False)


def _curve(axes, excess, color) -> None:
    shown = excess.nan_to_num(1e9, posinf=1e9).clamp(1e-9, 1e9)
    axes.semilogy(range(len(shown)), shown, "o-", color=color, markersize=3, linewidth=1.5)
    axes.set(xlim=(-1, STEPS + 1), ylim=(1e-8, 1e4), xlabel="step", ylabel="loss above its minimum")
    axes.set_title("The loss on all the data")
    style.decades(axes.yaxis)


def verdict(state: dict, excess: Any) -> str:
    """What the path does, and why, in a sentence."""
    lr, beta, batch_size, steps = state["lr"], state["beta"], state["batch_size"], state["steps"]
    limit, rule = max_stable_lr(problem().H, beta), "2(1+β)/λmax" if beta else "2/λmax"
    end = f"After {steps} step{'s' * (steps != 1)} the loss is {excess[-1]:.2g} above its minimum."
    if lr == 0:
        return Alarm("With a learning rate of 0 the weights never move.")
    if lr > limit:
        return Alarm(f"lr = {lr:.2f} exceeds {rule} = {limit:.2f}: each step overshoots by more. The path diverges.")
    if not excess[-1] <= 2 * excess[0]:
        return Alarm(
            f"The path diverges: lr = {lr:.2f} is below {rule} = {limit:.2f} of all the data, "
            f"but some batches of {batch_size} are steeper."
        )
    if batch_size < SAMPLES:
        return f"{end} Each step sees {batch_size} of {SAMPLES} samples: it points downhill only on average."
    if beta == 0 and lr > limit / 2:
        return f"{end} lr = {lr:.2f} is above 1/λmax = {limit / 2:.2f}: the path jumps across the valley and back."
    return f"{end} lr = {lr:.2f}; above {rule} = {limit:.2f} it would diverge."
