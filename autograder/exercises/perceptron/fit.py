"""The perceptron's training, epoch by epoch. Oracle: the library's training, on sets that take it a few epochs."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number
from autograder.exercises.perceptron.samples import XOR, XOR_LABELS, samples, separable_set
from hpcdl.nn import perceptron as oracle

exercise = Exercise(
    "fit",
    points=25,
    minutes=12,
    uses=("predict", "update"),
    meanings={"inconsistent tensor size": "w has one weight for each column of X, however many X has."},
)

FORGETS = "Every epoch begins again with w = 0 and forgets the one before: set w once, before the loop over epochs."
ONE_EPOCH = "This is w after the first epoch. Continue until an epoch passes without an update."


def slow_set(rng: torch.Generator, epochs: int):
    """A separable set on which the perceptron takes more than `epochs` epochs to settle, lr, and its history."""
    lr = 2.0 ** whole_number(rng, -3, 1)
    while True:
        X, y, _ = separable_set(24, 2, rng)
        history = oracle.train(X, y, lr, 200)
        if history.settled and len(history.mistakes) > epochs and 0 < (y > 0).sum() < len(y):
            return X, y, lr, history


def fitted(student, X, y, lr, max_epochs):
    """What the student's `fit` returns, as (w, mistakes), with its form checked."""
    result = student.fit(X, y, lr, max_epochs)
    form = "fit returns two things: w, and the list of mistakes per epoch."
    checks.that(type(result) in (tuple, list) and len(result) == 2, form, got=result)
    w, mistakes = result
    checks.tensor(w, name="w", shape=(X.shape[1],), dtype=X.dtype)
    checks.that(
        type(mistakes) is list, "The mistakes per epoch come as a list of ints, one for each epoch.", got=mistakes
    )
    return w, mistakes


def one_move_per_epoch(X, y, lr: float, max_epochs: int) -> torch.Tensor:
    """The mistake: all samples of an epoch judged by the same w, and w moved once."""
    w = X.new_zeros(X.shape[1])
    for _ in range(max_epochs):
        w = w + lr * ((y - oracle.predict(w, X))[:, None] * X).sum(dim=0)
    return w


@exercise.check(points=10)
def weights(student, rng):
    "Starting from w = 0, sample by sample in the order given, w ends up where the rule leads."
    X, y, lr, history = slow_set(rng, epochs=3)
    w, mistakes = fitted(student, X, y, lr, 200)
    backwards = oracle.train(X.flip(0), y.flip(0), lr, 200).weights[-1]
    first = oracle.train(X, y, lr, 1).weights[-1]
    if (oracle.predict(w, X) == y).all():
        why = "Your w does separate the samples, but another order, start or rule led to it."
    else:
        why = f"Your w gets {int((oracle.predict(w, X) != y).sum())} of the {len(y)} samples wrong."
    checks.close(
        w,
        history.weights[-1],
        name="w",
        why=why,
        mistakes={
            "You went through the samples backwards.": backwards,
            FORGETS if len(mistakes) > 1 else ONE_EPOCH: first,
            "You judged all samples of an epoch with one w and moved once. Use the new w for the very next sample.": (
                one_move_per_epoch(X, y, lr, 200)
            ),
        },
    )
    cut_off(student, rng)


def cut_off(student, rng: torch.Generator) -> None:
    """After max_epochs the last w counts, here on samples whose third epoch has more mistakes than an earlier one."""
    while True:
        X, y, lr, history = slow_set(rng, epochs=4)
        if history.mistakes[2] > min(history.mistakes[:2]):
            break
    best = int(history.mistakes[1] <= history.mistakes[0]) + 1
    w, _ = fitted(student, X, y, lr, 3)
    ends = {epochs: oracle.train(X, y, lr, epochs).weights[-1] for epochs in (best, 3)}
    checks.close(
        w,
        ends[3],
        name="w after max_epochs = 3",
        mistakes={"This is the w of the epoch with the fewest mistakes: return the last one.": ends[best]},
    )


@exercise.check(points=5)
def counts(student, rng):
    "mistakes[e] is the number of updates in epoch e, and there are at most max_epochs epochs."
    X, y, lr, history = slow_set(rng, epochs=4)
    _, mistakes = fitted(student, X, y, lr, 3)
    expected = history.mistakes[:3]
    checks.equal(
        mistakes,
        expected,
        name="mistakes",
        why="These samples need more than the 3 epochs that max_epochs allows here.",
        mistakes={
            "These are running totals. Begin each epoch's count at 0.": [sum(expected[: e + 1]) for e in range(3)],
            "You continued after max_epochs epochs.": history.mistakes,
            FORGETS: expected[:1] * 3,
        },
    )


@exercise.check(points=5)
def stops_when_settled(student, rng):
    "It stops after the first epoch without an update; that epoch's 0 is the last count."
    X, y, lr, history = slow_set(rng, epochs=2)
    _, mistakes = fitted(student, X, y, lr, 60)
    counts = history.mistakes
    checks.equal(
        mistakes,
        counts,
        name="mistakes",
        mistakes={
            FORGETS: counts[:1] * 60,
            "You never stop: after an epoch without an update nothing can change.": (counts + [0] * (60 - len(counts))),
            "The last epoch is missing: an epoch with 0 updates shows that the training is over, so count it.": (
                counts[:-1]
            ),
        },
    )
    X = samples(24, 3, rng)
    _, none = fitted(student, X, torch.ones(len(X)), lr, 60)
    checks.equal(none, [0], name="mistakes, if every label is +1", why="w = 0 calls every sample +1: none is wrong.")


@exercise.check(points=5, needs="counts", seconds=3)
def gives_up_on_xor(student, rng):
    "On samples that no line separates, it gives up after max_epochs."
    order = torch.randperm(4, generator=rng)
    X, y = XOR[order], XOR_LABELS[order]
    _, mistakes = fitted(student, X, y, 0.5, 25)
    checks.that(
        len(mistakes) == 25 and all(type(m) is int and m > 0 for m in mistakes),
        "On XOR every epoch has a mistake: 25 epochs give 25 counts, none of them 0.",
        got=mistakes,
        expected=oracle.train(X, y, 0.5, 25).mistakes,
    )
    checks.equal(mistakes, oracle.train(X, y, 0.5, 25).mistakes, name="mistakes on XOR")
