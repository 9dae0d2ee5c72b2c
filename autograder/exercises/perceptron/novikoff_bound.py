"""Novikoff's bound on the mistakes of a perceptron. Oracle: the mistakes that it makes, on 200 random sets."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.perceptron.samples import separable_set
from hpcdl.nn import perceptron as oracle

exercise = Exercise("novikoff_bound", points=15, minutes=8, uses=("margin",))


@exercise.check(points=6)
def value(student, rng):
    "The bound is (R / margin)^2 with R the length of the longest sample."
    for d in (2, 4):
        X, y, w = separable_set(15, d, rng)
        lengths, gamma = X.norm(dim=1), (y * (X @ w)).min() / w.norm()
        R = lengths.max()
        checks.close(
            student.novikoff_bound(X, y, w),
            ((R / gamma) ** 2).item(),
            name="novikoff_bound(X, y, w_star)",
            rtol=1e-5,
            mistakes={
                "Square it: the bound is (R / margin)^2.": R / gamma,
                "Upside down: it is (R / margin)^2, so that a wide margin means few mistakes.": (gamma / R) ** 2,
                "R is the length of the longest sample, not the mean length.": (lengths.mean() / gamma) ** 2,
                "R is the length of one sample, not of the whole matrix: X.norm(dim=1).": (X.norm() / gamma) ** 2,
                "R is the length of the whole sample, x_0 = 1 included.": (X[:, 1:].norm(dim=1).max() / gamma) ** 2,
                "R is a length, a root of a sum of squares. You took the largest entry.": (X.abs().max() / gamma) ** 2,
                "The margin is y z / |w_star|: divide by the length of w_star.": (R / (gamma * w.norm())) ** 2,
            },
        )


@exercise.check(points=6, needs="value", seconds=20)
def no_run_makes_more_mistakes(student, rng):
    "On 200 random separable sets, the perceptron never makes more mistakes than the bound allows."
    for k in range(200):
        d = int(torch.randint(1, 5, (), generator=rng))
        X, y, w = separable_set(int(torch.randint(2, 15, (), generator=rng)), d, rng)
        if k % 2:  # the same, shifted by 2: far from the origin the perceptron makes many mistakes
            X, w = X + 2.0 * (torch.arange(d + 1) > 0), w - 2.0 * w[1:].sum() * (torch.arange(d + 1) == 0)
        made = len(oracle.train(X, y, 1.0, 10_000).samples)
        bound = student.novikoff_bound(X, y, w)
        checks.close(bound, bound, name="novikoff_bound(X, y, w_star)")  # a finite number
        checks.that(
            float(bound) >= made * (1 - 1e-5),
            f"The perceptron made {made} mistakes on these {len(y)} samples, more than your bound allows.",
            got=f"{float(bound):.6g}",
            expected=f"{oracle.novikoff_bound(X, y, w):.6g}, which is at least {made}",
        )


@exercise.check(points=3)
def infinite_without_a_margin(student, rng):
    "If w_star does not separate the samples, the theorem does not apply: the bound is infinite."
    X, y, w = separable_set(12, 3, rng)
    checks.that(
        as_float(student.novikoff_bound(X, y, w)) < math.inf,
        "Here w_star does separate the samples: the bound is finite.",
    )
    y = y.clone()
    y[4] = -y[4]
    got = student.novikoff_bound(X, y, w)
    hint = " Squaring hides the sign of the margin: look at it first." if as_float(got) < math.inf else ""
    checks.that(
        as_float(got) == math.inf,
        f"w_star gets a sample wrong here, so its margin is negative and the bound must be math.inf.{hint}",
        got=got,
        expected="inf",
    )
    X = torch.tensor([[1.0, 2.0, 1.0], [1.0, 0.0, 3.0], [1.0, -2.0, 1.0]])
    got = student.novikoff_bound(X, torch.tensor([1.0, 1.0, -1.0]), torch.tensor([0.0, 1.0, 0.0]))
    checks.that(
        as_float(got) == math.inf,
        "A sample lies on the cut of w_star, so its margin is 0: w_star does not separate the samples, and the bound "
        "is math.inf.",
        got=got,
        expected="inf",
    )


def as_float(value) -> float:
    """A number, given as one or as a tensor of one element; NaN for anything else."""
    if type(value) is torch.Tensor and value.numel() == 1:
        value = value.item()
    return float(value) if type(value) in (int, float) else math.nan
