"""How late a gradient may be before descent explodes: learning rate against delay, the bound, and one run.

w_{t+1} = w_t - eta grad(w_{t-tau}) on L = w^2 / 2 shrinks while the roots of z^(tau+1) - z^tau + eta are inside the
unit circle: eta < 2 sin(pi / (4 tau + 2)).
"""

import math
from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import torch
from matplotlib.axes import Axes

from hpcdl.widgets.kit import palette, style
from hpcdl.widgets.kit.controls import slider
from hpcdl.widgets.kit.explorable import Explorable

DELAYS, STEPS = 20, 200
LOW, HIGH = 1e-3, 1e3  # of the weights that are shown

Descent = Callable[..., list[torch.Tensor]]


def explorable(own: Descent | None = None) -> Explorable:
    """Learning rate and delay; `own` is the student's `delayed_sgd(w, grad, lr, delay, steps)`, which makes the run."""
    controls = {
        "lr": slider("learning rate η", 0.3, 0.02, 2.2, 0.02),
        "delay": slider("delay τ, steps", 2, 0, DELAYS),
    }
    return Explorable(partial(draw, own=own), controls, layout=[["plane", "run"]], width_ratios=[1, 1.15])


def bound(delay: float) -> float:
    """The learning rate at which a run neither shrinks nor grows, for a curvature of 1."""
    return 2 * math.sin(math.pi / (4 * delay + 2))


@cache
def growth(lr: float, delay: int) -> float:
    """What a step multiplies w by, in the long run: the largest root of z^(delay + 1) - z^delay + lr."""
    coefficients = np.zeros(delay + 2)
    coefficients[0], coefficients[1] = 1.0, -1.0
    coefficients[-1] += lr
    return float(np.abs(np.roots(coefficients)).max())


def swing(lr: float, delay: int, steps: int) -> list[float]:
    """w_0 = 1 to w_steps for a curvature of 1: the run where the student has none yet."""
    run = [1.0] * (delay + 1)  # before the beginning nothing moved
    while len(run) <= steps + delay:
        run.append(run[-1] - lr * run[-1 - delay])
    return run[delay:]


def draw(state: dict, axes: Mapping[str, Axes], own: Descent | None) -> str:
    """The plane with the bound at the left, |w| of the run at the right."""
    lr, delay = state["lr"], state["delay"]
    whose, ws = run_of(own, lr, delay)
    limit, factor = bound(delay), growth(lr, delay)
    colour = style.VERMILLION if lr > limit else style.BLUE
    _draw_plane(axes["plane"], lr, delay, colour)
    _draw_run(axes["run"], ws, colour)
    axes["run"].set_title(f"{whose} run, η = {lr:g}, τ = {delay}")
    does = "shrinks" if lr < limit else "grows"
    return (
        f"With τ = {delay} the largest stable learning rate is {limit:.3g}; at η = {lr:g} the weight {does}: in "
        f"the long run a step multiplies it by {factor:.3f}."
    )


def run_of(own: Descent | None, lr: float, delay: int) -> tuple[str, list[float]]:
    """Whose run it is, and |w| after each step, from w = 1."""
    start = torch.ones(1, dtype=torch.float64)
    try:
        ws = (own or _unsolved)(start, lambda w: w, lr, delay, STEPS)
    except NotImplementedError:
        return "A", [abs(w) for w in swing(lr, delay, STEPS)]
    return "Your", [abs(float(w)) for w in ws]


def _unsolved(*_args):
    raise NotImplementedError


def _draw_plane(axes: Axes, lr: float, delay: int, colour: str) -> None:
    delays = np.linspace(0, DELAYS, 81)
    limits = np.array([bound(d) for d in delays])
    axes.fill_between(delays, 0, limits, color=palette.tint(style.BLUE, 0.2), linewidth=0)
    axes.plot(delays, limits, color=style.BLUE)
    axes.text(6.0, 0.62, "explodes above", fontsize=11)
    axes.text(0.45, 0.1, "converges", fontsize=11)
    axes.plot([delay], [lr], "o", color=colour, markersize=10)
    axes.set(xlim=(-0.5, DELAYS + 0.5), ylim=(0, 2.25), xlabel="delay τ, steps", ylabel="learning rate η · curvature λ")
    style.ticks(axes.xaxis, range(0, DELAYS + 1, 5), [str(d) for d in range(0, DELAYS + 1, 5)])
    style.ticks(axes.yaxis, (0, 0.5, 1, 1.5, 2), ("0", "0.5", "1", "1.5", "2"))
    axes.set_title("2 sin(π / (4τ + 2))")


def _draw_run(axes: Axes, ws: list[float], colour: str) -> None:
    decades = np.log10(np.clip(ws, LOW / 10, HIGH * 10))  # on a plain axis, which is drawn twice as fast
    axes.plot(decades, color=colour)
    axes.set(xlim=(0, STEPS), ylim=(np.log10(LOW), np.log10(HIGH)), xlabel="step", ylabel="|w|")
    style.ticks(axes.xaxis, (0, 50, 100, 150, 200), ("0", "50", "100", "150", "200"))
    style.ticks(axes.yaxis, (-3, -1, 1, 3), ("0.001", "0.1", "10", "1000"))
