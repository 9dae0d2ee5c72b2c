"""Novikoff's bound on the mistakes of a perceptron. Oracle: the formula."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.perceptron.samples import separable_set

exercise = Exercise("novikoff_bound", points=15, minutes=8, uses=("margin",))


@exercise.check(points=9)
def value(student, rng):
    "The bound is (R / margin)^2 with R the length of the longest sample."
    for d, shift in ((2, 0.0), (4, 0.0), (1, 2.0), (3, 2.0)):  # far from the origin the bound is large
        X, y, w = separable_set(15, d, rng)
        X, w = X + shift * (torch.arange(d + 1) > 0), w - shift * w[1:].sum() * (torch.arange(d + 1) == 0)
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
                "R is the length of the longest sample, not of the shortest.": (lengths.min() / gamma) ** 2,
                "Divide by the length of the whole w_star, w_0 included: x has its x_0 too.": (
                    R / gamma / w.norm() * w[1:].norm()
                )
                ** 2,
                "This takes the mean for the margin, which belongs to the nearest sample: take the minimum.": (
                    R * w.norm() / (y * (X @ w)).mean()
                )
                ** 2,
                "The margin is y z / |w_star|: divide by the length of w_star.": (R / (gamma * w.norm())) ** 2,
            },
        )


@exercise.check(points=6)
def infinite_without_a_margin(student, rng):
    "If w_star does not separate the samples, the theorem does not apply: the bound is infinite."
    bounds = []
    for X, y, w in (separable_set(12, 3, rng) for _ in range(4)):
        bounds.append(as_float(student.novikoff_bound(X, y, w)))
        checks.that(bounds[-1] < math.inf, "Here w_star does separate the samples: the bound is finite.")
        checks.that(bounds[-1] > 0, "Here w_star does separate the samples: (R / margin)^2 is above 0.", got=bounds[-1])
    checks.that(
        len(set(bounds)) > 1,
        "Four sets of samples, each with its own margin, have the same bound: compute (R / margin)^2 of each.",
        got=bounds,
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
    return float(value) if checks.is_number(value) else math.nan
