"""Three sets of digits: a small network learns from the first, is stopped by the second, and judged by the third.

    C + lambda/2 sum w^2          weight decay: each step also takes W to (1 - eta lambda) W; biases are left alone
    h * mask / (1 - p)            dropout: a hidden neuron is left out of a step with probability p, the others speak up

A share of the training labels is wrong, so that there is something that should not be learned. An epoch is one step of
gradient descent with momentum on all training digits. Losses and fractions are those of the whole network: nothing is
left out, and the penalty not counted.

Source: Krogh and Hertz 1992, "A simple weight decay can improve generalization"; Prechelt 1998, "Early stopping - but
when?"; Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov 2014, "Dropout".
"""

from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from torch import Tensor

from hpcdl.data import digits
from hpcdl.nn import mlp
from hpcdl.widgets.kit.controls import stops
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.style import BLUE, GREEN, INK, ORANGE, ticks

EPOCHS, LR, MOMENTUM = 100, 1.0, 0.9
VALIDATION = 359  # digits, as many as in the test set
SETS = {"training": BLUE, "validation": ORANGE, "test": GREEN}
Layers = tuple[Tensor, Tensor, Tensor, Tensor]  # W^2, W^3, b^2, b^3
PERCENT = {f"{100 * share:.0f} %": share for share in (0.0, 0.1, 0.2, 0.3)}


class Sets(NamedTuple):
    """Digits as rows of 64 pixels, with their labels."""

    x: Tensor
    labels: Tensor
    x_validation: Tensor
    labels_validation: Tensor
    x_test: Tensor
    labels_test: Tensor


class LearningCurves(NamedTuple):
    """Losses after 0, 1, ... epochs, the epoch of the lowest on the validation set, and what is read at two epochs.

    `right`: by set, the fraction of its digits that are read as labelled, `(at the best epoch, at the last one)`.
    """

    training: Tensor
    validation: Tensor
    best: int
    right: dict[str, tuple[float, float]]


def explorable() -> Explorable:
    """How much there is to learn from, how much of it is wrong, and three ways to hold a network back."""
    controls = {
        "training": stops("training digits", (50, 100, 150, 200, 400), 150),
        "wrong": stops("wrong labels", list(PERCENT.items()), 0.2),
        "hidden": stops("hidden neurons", (4, 16, 32, 64), 32),
        "decay": stops("weight decay λ", (0.0, 0.001, 0.003, 0.01, 0.03), 0.0),
        "dropout": stops("dropout p", (0.0, 0.2, 0.5, 0.8), 0.0),
    }
    return Explorable(draw, controls, layout=[["loss", "right"]], width_ratios=[1.35, 1])


@cache
def sets(training: int, wrong: float) -> Sets:
    """The first digits to learn from, the last to validate; a share `wrong` of the training labels is wrong."""
    split, generator = digits(), torch.Generator().manual_seed(0)
    x, labels = split.x.flatten(1), split.y
    changed = torch.rand(len(labels), generator=generator) < wrong
    taught = torch.where(changed, (labels + torch.randint(1, 10, labels.shape, generator=generator)) % 10, labels)
    test = split.x_held_out.flatten(1), split.y_held_out
    return Sets(x[:training], taught[:training], x[-VALIDATION:], labels[-VALIDATION:], *test)


@lru_cache(maxsize=2048)
def trained(training: int, wrong: float, hidden: int, decay: float, dropout: float) -> LearningCurves:
    """A network of 64, `hidden` and 10 neurons, after each epoch of its training."""
    data, generator = sets(training, wrong), torch.Generator().manual_seed(0)
    x, labels = torch.cat((data.x, data.x_validation)), torch.cat((data.labels, data.labels_validation))[:, None]
    w, decayed = start(hidden, generator)
    network, v, truth = layers(w, hidden), torch.zeros_like(w), torch.nn.functional.one_hot(data.labels, 10)
    log_p, networks = [], []
    for _ in range(EPOCHS + 1):
        h, logits = forward(network, x)
        log_p.append(logits.log_softmax(dim=1).gather(1, labels))
        networks.append(w.clone())
        kept = torch.rand(training, hidden, generator=generator).ge(dropout) / (1 - dropout) if dropout else None
        grad = gradient(network, data.x, truth, h[:training], logits[:training], kept)
        v.mul_(MOMENTUM).add_(grad).add_(decayed * w, alpha=decay)
        w.sub_(v, alpha=LR)
    losses = -torch.cat(log_p, dim=1)
    return measured(data, losses[:training].mean(dim=0), losses[training:].mean(dim=0), networks, hidden)


def start(hidden: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """All parameters in one vector, and 1 where weight decay takes from them: at weights, not at biases."""
    weights, biases = mlp.initial((64, hidden, 10), generator)
    ones = [torch.full_like(p, float(p.ndim == 2)) for p in (*weights, *biases)]
    w, decayed = (torch.cat([p.flatten() for p in parts]) for parts in ((*weights, *biases), ones))
    return w, decayed


def layers(w: Tensor, hidden: int) -> Layers:
    """W^2, W^3, b^2, b^3 where they lie in the vector of all parameters."""
    W2, W3, b2, b3 = w.split((64 * hidden, 10 * hidden, hidden, 10))
    return W2.view(hidden, 64), W3.view(10, hidden), b2, b3


def forward(network: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the hidden layer says, and the logits."""
    W2, W3, b2, b3 = network
    h = torch.addmm(b2, x, W2.T).sigmoid_()
    return h, torch.addmm(b3, h, W3.T)


def gradient(network: Layers, x: Tensor, truth: Tensor, h: Tensor, logits: Tensor, kept: Tensor | None) -> Tensor:
    """The gradient of the mean cross-entropy in one vector; with dropout the hidden layer says `h * kept` instead."""
    _, W3, _, b3 = network
    slope = h * (1 - h)
    if kept is not None:
        h, slope = h * kept, slope * kept
        logits = torch.addmm(b3, h, W3.T)
    delta = (logits.softmax(dim=1) - truth) / len(x)
    back = (delta @ W3) * slope
    return torch.cat(((back.T @ x).flatten(), (delta.T @ h).flatten(), back.sum(dim=0), delta.sum(dim=0)))


def measured(data: Sets, training: Tensor, validation: Tensor, networks: list[Tensor], hidden: int) -> LearningCurves:
    """What is shown of a run; the test set is asked about two of its networks."""
    best = int(validation.argmin())
    stopped, last = (layers(w, hidden) for w in (networks[best], networks[-1]))
    asked = dict(zip(SETS, zip(data[::2], data[1::2], strict=True), strict=True))
    return LearningCurves(
        training, validation, best, {name: (right(stopped, *xy), right(last, *xy)) for name, xy in asked.items()}
    )


def right(network: Layers, x: Tensor, labels: Tensor) -> float:
    """The fraction of the digits that are read as their labels say."""
    return (forward(network, x)[1].argmax(dim=1) == labels).float().mean().item()


def draw(state: dict, axes: dict[str, Axes]) -> str:
    """`state`: training, wrong, hidden, decay, dropout."""
    run = trained(**state)
    _draw_losses(axes["loss"], run)
    _draw_right(axes["right"], run)
    return sentence(run)


def _draw_losses(axes: Axes, run: LearningCurves) -> None:
    for name in ("training", "validation"):
        axes.plot(getattr(run, name), color=SETS[name], label=name)
    lowest = float(run.validation[run.best])
    axes.plot([run.best, run.best], [lowest, 3.2], "--", color=INK, linewidth=1)
    axes.plot(run.best, lowest, "o", color=SETS["validation"], markersize=8)
    where: Any = {"ha": "left", "x": run.best + 1} if run.best < EPOCHS / 2 else {"ha": "right", "x": run.best - 1}
    axes.text(y=3.08, s=f"best: epoch {run.best}", **where)
    axes.set(xlim=(-1, EPOCHS + 1), ylim=(0, 4), xlabel="epoch", ylabel="cross-entropy")
    axes.set_title("The loss, epoch by epoch")
    axes.legend(loc="upper right", ncols=2)


def _draw_right(axes: Axes, run: LearningCurves) -> None:
    for shift, alpha, shares in zip((-0.2, 0.2), (1, 0.45), zip(*run.right.values(), strict=True), strict=True):
        places, heights = [i + shift for i in range(len(SETS))], [100 * share for share in shares]
        bars = axes.bar(places, heights, 0.38, color=list(SETS.values()), alpha=alpha)
        axes.bar_label(bars, fmt="%.0f", padding=2)
    axes.set(ylim=(0, 112), ylabel="digits read right, %")
    ticks(axes.xaxis, range(len(SETS)), list(SETS))
    axes.set_title(f"At the best epoch; at {EPOCHS} (faint)")


def sentence(run: LearningCurves) -> str:
    """What stopping at the best epoch is worth, in test digits."""
    best, last = (f"{100 * share:.0f} %" for share in run.right["test"])
    if run.best == EPOCHS:
        return f"The validation loss is lowest at the end, epoch {EPOCHS}: {last} of the test digits are read right."
    repeated = f"{100 * run.right['training'][1]:.0f} % of its labels"
    return (
        f"Stopped at epoch {run.best}, it reads {best} of the test digits right; "
        f"after {EPOCHS} epochs, when it repeats {repeated}, {last}."
    )
