"""Steps against a gradient that is forgotten after each, or that piles up: what `backward()` adds to `.grad`."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import checkbox, slider
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import Alarm

START, REACH = -2.0, 3.2


class GradSteps(NamedTuple):
    """w before each step and after the last; the slope at each, and the content of w.grad."""

    w: list[float]
    slopes: list[float]
    grads: list[float]


def explorable() -> Explorable:
    """Steps, learning rate, and whether the gradient is forgotten."""
    controls = {
        "steps": slider("steps", 3, 0, 8),
        "lr": slider("lr", 0.2, 0.05, 0.6, 0.05),
        "forget": checkbox("w.grad = None after each step", False),
    }
    return Explorable(draw, controls, (9.6, 3.8), layout=[["loss", "grad"]])


def path(steps: int, lr: float, forget: bool) -> GradSteps:
    """Steps on the loss w²."""
    w, grad, found = START, 0.0, GradSteps([START], [], [])
    for _ in range(steps):
        grad = 2 * w + (0.0 if forget else grad)
        found.slopes.append(2 * w)
        found.grads.append(grad)
        w -= lr * grad
        found.w.append(w)
    return found


def draw(state: dict, axes: dict[str, Axes]) -> str:
    found = path(state["steps"], state["lr"], state["forget"])
    _draw_loss(axes["loss"], found)
    _draw_grads(axes["grad"], found)
    return sentence(found, state["forget"])


def _draw_loss(axes: Axes, found: GradSteps) -> None:
    xs = np.linspace(-REACH, REACH, 121)
    axes.plot(xs, xs**2, color=style.CONTOUR)
    axes.plot(found.w, np.square(found.w), "o-", color=style.BLUE, linewidth=1.2, markersize=6)
    axes.plot(found.w[-1], found.w[-1] ** 2, "o", color=style.VERMILLION, markersize=10)
    axes.set(xlim=(-REACH, REACH), ylim=(-0.5, 8), xlabel="w", ylabel="loss = w²")
    axes.set_title("w, step by step")


def _draw_grads(axes: Axes, found: GradSteps) -> None:
    turns = range(1, len(found.grads) + 1)
    axes.bar([turn - 0.2 for turn in turns], found.slopes, width=0.35, color=style.GREY, label="slope at w")
    axes.bar([turn + 0.2 for turn in turns], found.grads, width=0.35, color=style.ORANGE, label="w.grad")
    axes.axhline(0, color=style.INK, linewidth=0.8)
    axes.set(xlim=(0.4, 8.6), ylim=(-9, 12), xlabel="step", ylabel="gradient")
    axes.set_title("what the step used")
    axes.legend(loc="upper right", ncols=2)


def sentence(found: GradSteps, forget: bool) -> str:
    """Where w is, and which gradient its last step used."""
    w = f"w = {found.w[-1]:.3g}".replace("-", "−")
    if not found.grads:
        return f"{w}: the slope is {2 * START:g}, so w is to grow. Take a step.".replace("-", "−")
    slope, grad = (f"{x:.3g}".replace("-", "−") for x in (found.slopes[-1], found.grads[-1]))
    if forget or len(found.grads) == 1:
        return f"{w}. backward() has written the slope {slope} into w.grad, and the step used it."
    return Alarm(f"{w}. The slope was {slope}, but backward() adds: w.grad held {grad}, the sum of all slopes so far.")
