"""The product as a further coordinate, with which a plane separates XOR. Oracle: a search for such a plane."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number
from autograder.exercises.perceptron.samples import XOR, XOR_LABELS, samples
from hpcdl.nn import perceptron as oracle

exercise = Exercise("lift", points=5, minutes=5)


@exercise.check(points=3)
def appends_the_product(student, rng):
    "Each row (1, x1, x2) becomes (1, x1, x2, x1 x2)."
    for n in (whole_number(rng, 8, 48), whole_number(rng, 2, 7), 1):
        X = samples(n, 2, rng) + torch.tensor([0.0, 1 / 16, 1 / 16])  # never 0 or 1
        product, square = X[:, 1:2] * X[:, 2:3], X[:, 1:2] ** 2
        checks.close(
            student.lift(X.clone()),
            torch.cat([X, product], dim=1),
            name="lift(X)",
            mistakes={
                "This is only the new column. Put it next to the three of X, with torch.cat.": product,
                "These are only the products. Make a column of them, and put it next to X.": product.squeeze(1),
                "The product comes last: (1, x1, x2, x1 x2).": torch.cat([X[:, :1], product, X[:, 1:]], dim=1),
                "That is x1 squared. The new coordinate is x1 times x2.": torch.cat([X, square], dim=1),
                "That is x1 + x2. A sum of coordinates adds nothing that a line cannot do; take their product.": (
                    torch.cat([X, X[:, 1:2] + X[:, 2:3]], dim=1)
                ),
                "The columns are counted from 0: x_0 = 1 is in column 0, x1 in column 1, x2 in column 2.": (
                    torch.cat([X, X[:, 0:1] * X[:, 1:2]], dim=1)
                ),
            },
        )


@exercise.check(points=1)
def xor_becomes_separable(student, rng):
    "Four clouds in the pattern of XOR, which no line separates, are separable after the lift."
    corner = torch.randint(0, 4, (40,), generator=rng)
    X = XOR[corner] + torch.cat([torch.zeros(40, 1), torch.randint(-5, 6, (40, 2), generator=rng) / 8], dim=1)
    lifted = student.lift(X.clone())
    checks.tensor(lifted, name="lift(X)", dtype=X.dtype)
    checks.that(lifted.dim() == 2 and len(lifted) == 40, "lift(X) has a row for each row of X.", got=lifted)
    columns = lifted.shape[1]
    checks.that(columns <= 4, f"lift(X) has {columns} columns: append one to the three of X.", got=lifted)
    checks.that(
        oracle.separable(lifted, XOR_LABELS[corner]),
        "No plane separates the lifted samples. Where the signs of x1 and x2 differ, x1 x2 is negative; append that.",
        got=lifted,
    )


@exercise.check(points=1, needs="appends_the_product")
def x_is_not_changed(student, rng):
    "The samples that were passed in are not changed."
    X = samples(whole_number(rng, 1, 40), 2, rng)
    given = X.clone()
    got = student.lift(given)
    checks.tensor(got, name="lift(X)")
    checks.unchanged(given, X, name="X")
    checks.close(got, torch.cat([X, X[:, 1:2] * X[:, 2:3]], dim=1), name="lift(X)")
