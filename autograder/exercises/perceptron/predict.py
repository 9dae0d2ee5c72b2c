"""What a perceptron answers: the sign of w^T x. Oracle: the library's perceptron."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number
from autograder.exercises.perceptron.samples import samples
from hpcdl.nn import perceptron as oracle

exercise = Exercise("predict", points=10, minutes=5)


def bias_matters(n: int, d: int, rng: torch.Generator):
    """w (d + 1,) and samples X (n, d + 1), none with z = 0; without w_0 every other one would get the other sign."""
    w, X = samples(1, d, rng).squeeze(0) + 1 / 64, samples(500, d, rng)
    w[0], w[d] = -1.0, 1.0
    z, without_bias = X @ w, X[:, 1:] @ w[1:]
    changed = (z < 0) & (without_bias > 0)
    same = (z * without_bias > 0) & (z.abs() > 0)
    return w, torch.stack([X[changed][: n // 2 + 1], X[same][: n // 2 + 1]], dim=1).flatten(0, 1)[:n]


@exercise.check(points=4)
def sign_of_z(student, rng):
    "Each row of X gets the sign of w^T x, as +1 or -1."
    for n, d in ((6, 2), (9, 4)):
        w, X = bias_matters(n, d, rng)
        z = X @ w
        checks.close(
            student.predict(w, X),
            oracle.predict(w, X),
            name="predict(w, X)",
            mistakes={
                "w * X multiplies entry by entry. w^T x is the sum of these products: X @ w.": (w * X).sign(),
                "These are the values of z. A perceptron answers with their sign: +1 or -1.": z,
                "You answer 0 for the negative side. The labels of this lab are +1 and -1.": (z >= 0).float(),
                "Every sign is wrong: z > 0 means +1.": -oracle.predict(w, X),
                "The bias is missing: w_0 is the first entry of w, and x_0 = 1 is part of w^T x.": (
                    oracle.predict(w[1:], X[:, 1:])
                ),
            },
        )


@exercise.check(points=3)
def zero_counts_as_plus(student, rng):
    "sgn(0) = +1."
    d = whole_number(rng, 2, 4)
    w, X = samples(1, d, rng).squeeze(0), samples(5, d, rng)
    w[0], w[d] = whole_number(rng, 5, 16) / 8, 2.0 ** whole_number(rng, -1, 1)
    z = torch.tensor([-0.5, 0.0, 0.5, 0.0, whole_number(rng, 1, 8) / 8])  # without w_0 row 2 would be negative
    X[:, d] = (z - X[:, :d] @ w[:d]) / w[d]  # all of these are multiples of 1/128: nothing is rounded
    expected = oracle.predict(w, X)
    at_zero = (X @ w == 0).float()
    checks.close(
        student.predict(w, X),
        expected,
        name="predict(w, X)",
        why="Rows 1 and 3 of X have z = 0 exactly, and sgn(0) = +1 in this course.",
        mistakes={
            "Where z is 0 you answer 0, as torch.sign does. A perceptron must choose: sgn(0) = +1.": expected - at_zero,
            "Where z is 0 you answer -1. sgn(0) = +1: compare with >=, not with >.": expected - 2 * at_zero,
        },
    )


@exercise.check(points=3)
def one_sample_or_many(student, rng):
    "A single sample x (n+1,) gives a single label; a batch of one gives a batch of one."
    w, X = bias_matters(4, 3, rng)
    checks.close(student.predict(w, X[:1]), oracle.predict(w, X[:1]), name="predict(w, X) for one row")
    for x in X:
        checks.close(student.predict(w, x), oracle.predict(w, x), name="predict(w, x) for a single sample x")
