"""Which of eight programs train a perceptron as exercise 3 does? Oracle: exact fractions."""

from fractions import Fraction

import numpy as np
import torch

from autograder.checks.impostors import InputField, LineUp, Suspect, is_list, is_number, whole
from autograder.exercises.unmasking import examines

SAMPLES, EPOCHS, FAR = 8, 20, 8


def is_quarter(value, least=-FAR) -> bool:
    """Whether it is a multiple of 1/4 that is not large: sums and products of those are exact in float64."""
    return is_number(value, least, FAR) and 4 * value == int(4 * value)


def is_point(value) -> bool:
    return is_list(value, 2, 2) and all(map(is_quarter, value))


def ask(fit, points, labels, lr, max_epochs):
    """The weights and the mistakes, as numbers."""
    X = torch.tensor([[1.0, *point] for point in points], dtype=torch.float64)
    w, mistakes = fit(X, torch.tensor(labels, dtype=torch.float64), float(lr), max_epochs)
    return [float(each) for each in w], [int(count) for count in mistakes]


def truth(X, y, lr, max_epochs):
    samples = [([Fraction(value) for value in x], int(label)) for x, label in zip(X.tolist(), y.tolist(), strict=True)]
    w = [Fraction(0)] * 3
    mistakes: list[int] = []
    while len(mistakes) < max_epochs and 0 not in mistakes:
        mistakes.append(0)
        for x, label in samples:
            yhat = 1 if sum(a * b for a, b in zip(w, x, strict=True)) >= 0 else -1
            w = [a + Fraction(lr) * (label - yhat) * b for a, b in zip(w, x, strict=True)]
            mistakes[-1] += yhat != label
    return w, mistakes


def sign(z):
    return 1.0 if z >= 0 else -1.0


def settled(mistakes):
    return mistakes[-1] == 0


def train(X, y, lr, max_epochs, sign=sign, done=settled):
    w, mistakes = X.new_zeros(3), []
    for _ in range(max_epochs):
        mistakes.append(0)
        for x, label in zip(X, y.tolist(), strict=True):
            if sign(w @ x) != label:
                w = w + lr * (label - sign(w @ x)) * x
                mistakes[-1] += 1
        if done(mistakes):
            break
    return w, mistakes


def always_adds(X, y, lr, max_epochs):
    """Adds where the label is right, too: there it adds zero."""
    w, mistakes = np.zeros(3), []
    for _ in range(max_epochs):
        wrong = 0
        for x, label in zip(X.numpy(), y.numpy(), strict=True):
            error = label - (1.0 if x @ w >= 0 else -1.0)
            w, wrong = w + lr * error * x, wrong + bool(error)
        mistakes.append(wrong)
        if not wrong:
            return w, mistakes
    return w, mistakes


def one_by_one(X, y, lr, max_epochs):
    """Asks of each sample, in a loop over all that there are in max_epochs, whether it ends an epoch."""
    w, mistakes, m = X.new_zeros(3), [], len(y)
    for i in range(m * max_epochs):
        x, label = X[i % m], y[i % m].item()
        if i % m == 0:
            mistakes.append(0)
        if sign(x @ w) != label:
            w, mistakes[-1] = w + 2 * lr * label * x, mistakes[-1] + 1
        if i % m == m - 1 and mistakes[-1] == 0:
            break
    return w, mistakes


def dual(X, y, lr, max_epochs):
    """Counts how often each sample was added: w is never kept."""
    counts, mistakes, products = torch.zeros_like(y), [], X @ X.T
    for _ in range(max_epochs):
        mistakes.append(0)
        for i in range(len(y)):
            if sign((counts * y) @ products[i]) != y[i]:
                counts[i] += 1
                mistakes[-1] += 1
        if not mistakes[-1]:
            break
    return 2 * lr * (counts * y) @ X, mistakes


def minus_at_zero(X, y, lr, max_epochs):
    return train(X, y, lr, max_epochs, sign=lambda z: 1.0 if z > 0 else -1.0)


def impatient(X, y, lr, max_epochs):
    return train(X, y, lr, max_epochs, done=lambda found: found[-1] == 0 or (len(found) > 1 and found[-1] >= found[-2]))


def whole_batches(X, y, lr, max_epochs):
    """Judges all samples of an epoch by the weights that it began with."""
    w, mistakes = X.new_zeros(3), []
    for _ in range(max_epochs):
        error = y - torch.where(X @ w >= 0, 1.0, -1.0)
        mistakes.append(int(error.count_nonzero()))
        w = w + lr * error @ X
        if not mistakes[-1]:
            break
    return w, mistakes


def an_epoch_short(X, y, lr, max_epochs):
    return train(X, y, lr, max(max_epochs - 1, 1))


line_up = LineUp(
    "unmask_fit",
    truth=truth,
    suspects=(
        Suspect("A", minus_at_zero, "takes sgn(0) = -1", "a sample at z = 0, as the first one is"),
        Suspect("B", always_adds),
        Suspect("C", one_by_one),
        Suspect(
            "D",
            whole_batches,
            "updates once per epoch, for all mistakes together",
            "two samples, where the first's update changes the verdict on the second",
        ),
        Suspect(
            "E",
            impatient,
            "stops if an epoch has as many mistakes as the one before",
            "samples for which the mistakes do not fall in every epoch",
        ),
        Suspect("F", train),
        Suspect("G", an_epoch_short, "stops one epoch early", "samples that are not learned within max_epochs > 1"),
        Suspect("H", dual),
    ),
    fields={
        "points": InputField(
            f"a list of 1 to {SAMPLES} pairs (x1, x2) of multiples of 0.25 from -{FAR} to {FAR}",
            lambda v: is_list(v, 1, SAMPLES) and all(map(is_point, v)),
        ),
        "labels": InputField(
            "a list of as many labels, each +1 or -1",
            lambda v: is_list(v, 1, SAMPLES) and all(is_number(each, -1, 1) and abs(each) == 1 for each in v),
        ),
        "lr": InputField(f"a multiple of 0.25 from 0.25 to {FAR}", lambda v: is_quarter(v, 0.25)),
        "max_epochs": whole(1, EPOCHS),
    },
    ask=ask,
    outside=lambda points, labels, *rest: (
        "" if len(points) == len(labels) else f"{len(points)} points have {len(labels)} labels, and each has one"
    ),
)
exercise = examines(line_up)
