"""Gradients in sixteen and eight bits, and a scale for the loss: how many become 0, how many overflow.

The gradients are those of a network's activations, as Micikevicius et al. 2018 looked at them ("Mixed precision
training"): by default of six layers on the digits after some hundred steps. Zeros are counted by `numerics.rounding`.
"""

import itertools
from collections.abc import Mapping
from functools import cache, partial

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hpcdl.data import digits
from hpcdl.numerics.rounding import FLOATS, Float, round_nearest
from hpcdl.numerics.rounding.threads import one_thread
from hpcdl.widgets.kit import style, units
from hpcdl.widgets.kit.controls import choice, slider
from hpcdl.widgets.kit.explorable import Explorable

LAYERS, WIDTH, ROWS, STEPS, LEARNING_RATE = 6, 96, 512, 300, 0.2
SHOWN = 10  # each tenth gradient: enough for a picture
LOW, HIGH = -44, 20  # powers of two that are shown
NAMES = {"FP16": "FP16", "BF16": "BF16", "FP8, 4 + 3 bits": "FP8_E4M3", "FP8, 5 + 2 bits": "FP8_E5M2"}
COLORS = {"becomes 0": style.VERMILLION, "few bits": style.ORANGE, "kept": style.BLUE, "too large": style.PURPLE}


def explorable(gradients: Tensor | None = None) -> Explorable:
    """The format, and the power of two that the loss is multiplied by; of these gradients, or those of the digits."""
    controls = {
        "format": choice("format", list(NAMES.items()), "FP16"),
        "power": slider("scale, 2 to the power of", 0, 0, 40),
    }
    return Explorable(partial(draw, gradients=gradients), controls, (9.6, 3.9))


@cache
def of_the_digits() -> Tensor:
    """The gradients of all hidden activations of one batch, without those that are 0 in float32, too."""
    with one_thread():  # the second one would wait longer than it works
        return _after_training()[::SHOWN]


def _after_training() -> Tensor:
    data, generator = digits(), torch.Generator().manual_seed(0)
    sizes = [64, *[WIDTH] * LAYERS, 10]
    weights = [torch.randn(a, b, generator=generator).mul_((2 / a) ** 0.5) for a, b in itertools.pairwise(sizes)]
    params = [nn.Parameter(weight) for weight in weights]
    hidden: list[Tensor] = []
    for step in range(STEPS + 1):
        rows = torch.randint(len(data.y), (ROWS,), generator=generator)
        hidden = _activations(data.x[rows].flatten(1), params)
        loss = cross_entropy(hidden[-1], data.y[rows])
        if step == STEPS:
            found = torch.autograd.grad(loss, hidden[:-1])
            flat = torch.cat([gradient.flatten() for gradient in found])
            return flat[flat != 0]
        with torch.no_grad():
            for param, gradient in zip(params, torch.autograd.grad(loss, params), strict=True):
                param.sub_(LEARNING_RATE * gradient)
    raise AssertionError("the last step returns")


def _activations(x: Tensor, params: list) -> list[Tensor]:
    result = []
    for param in params[:-1]:
        x = torch.relu(x @ param)
        result.append(x)
    return [*result, x @ params[-1]]


def shares(gradients: Tensor, fmt: Float, power: int) -> tuple[float, float]:
    """Of gradients times 2^power: how many become 0 in the format, and how many are beyond its largest number."""
    scaled = gradients.double() * 2.0**power
    rounded = round_nearest(scaled.float(), fmt)
    lost = (rounded == 0) & (gradients != 0)
    return lost.float().mean().item(), (scaled.abs() > fmt.max).float().mean().item()


def fates(fmt: Float) -> dict[str, tuple[float, float]]:
    """Powers of two between which a number becomes 0, is subnormal, is normal, or is too large."""
    least = fmt.min_exponent - fmt.mantissa_bits  # of the smallest number: half of it is rounded away
    largest = float(np.log2(fmt.max))
    return {
        "becomes 0": (LOW - 60, least - 1),
        "few bits": (least - 1, fmt.min_exponent),
        "kept": (fmt.min_exponent, largest),
        "too large": (largest, HIGH + 200),
    }


def draw(state: Mapping, axes: Axes, gradients: Tensor | None = None) -> str:
    gradients = of_the_digits() if gradients is None else gradients
    fmt, power = FLOATS[state["format"]], state["power"]
    places, heights = _histogram(gradients)
    bounds = fates(fmt)
    for fate, (low, high) in bounds.items():
        inside = [height if low <= place + power < high else 0.0 for place, height in zip(places, heights, strict=True)]
        xs = [place + power for place in places]
        axes.fill_between(xs, inside, step="post", color=COLORS[fate], label=fate, linewidth=0)
        if low > LOW:
            axes.axvline(low, color=style.GREY, linewidth=0.8, linestyle=":")
    axes.set(xlim=(LOW, HIGH), ylim=(0, 1.05 * max(heights)))
    axes.set(xlabel="size of a gradient times the scale, powers of two", ylabel="share of gradients, %")
    axes.set_title(
        f"Gradients of activations in {state['format'].replace('_', ' ')}, loss times 2{units.raised(power)}", pad=26
    )
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, fontsize=10, handlelength=1, columnspacing=1)
    lost, over = shares(gradients, fmt, power)
    if over:
        beyond = "would be infinite: the step is left out" if fmt.has_infinity else "are cut to the largest number"
        return style.Alarm(f"{100 * lost:.1f} % become 0, and {100 * over:.2f} % {beyond}.")
    room = int(np.floor(np.log2(fmt.max / gradients.abs().max().item())))
    gone = f"{100 * lost:.1f} % of the gradients become 0."
    return f"{gone} The largest of them allows a scale of up to 2{units.raised(room)}."


def _histogram(gradients: Tensor) -> tuple[list[int], list[float]]:
    """All powers of two from the least to the largest, and the percentage of gradients in each; the last is empty."""
    exponents = torch.frexp(gradients.abs()).exponent - 1
    least, largest = int(exponents.min()), int(exponents.max())
    counts = torch.bincount((exponents - least).long(), minlength=largest - least + 2)
    return list(range(least, largest + 2)), (100 * counts / len(gradients)).tolist()
