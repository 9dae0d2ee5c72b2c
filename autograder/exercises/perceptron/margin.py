"""The margin of a line: how far the nearest sample is from it. Oracle: the least distance, written out."""

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.perceptron.samples import separable_set
from hpcdl.nn import perceptron as oracle

exercise = Exercise("margin", points=5, minutes=6)

COSINE = "This is a cosine: you divided by |x| too, and a distance is y z / |w|."


def cosines(X, y, w):
    """The mistake: of the angles between w and the samples."""
    return y * (X @ w) / (w.norm() * X.norm(dim=1))


@exercise.check(points=4)
def the_nearest_sample(student, rng):
    "The margin is the least of y w^T x / |w| over the samples."
    for d, scale in ((2, 1), (5, 1), (2, 8)):  # w and 8 w draw the same line
        X, y, w = separable_set(20, d, rng)
        w = scale * w
        z, length = X @ w, w.norm()
        nearest = (y * z).min()
        checks.close(
            student.margin(w, X, y),
            (nearest / length).item(),
            name="margin(w, X, y)",
            mistakes={
                "You did not divide by |w|: a w twice as long would have twice the margin.": nearest,
                "These are the distances of all samples. The margin is one number, the smallest.": y * z / length,
                "Divide by the length of the whole w, w_0 included: x has its x_0 too.": nearest / w[1:].norm(),
                COSINE: cosines(X, y, w).min(),
                "You divided by |w| squared: the distance is y z / |w|.": nearest / length**2,
                "This is the mean. The margin belongs to the nearest sample: take the minimum.": (y * z).mean()
                / length,
                "This is the farthest sample. The margin belongs to the nearest: take the minimum.": (y * z).max()
                / length,
                "The labels are missing: a sample of -1 is right when z is negative, so take y z.": z.min() / length,
            },
        )


@exercise.check(points=1)
def negative_when_wrong(student, rng):
    "Where w gets a sample wrong, the margin is negative."
    X, y, w = separable_set(12, 3, rng)
    z, y = X @ w, y.clone()
    k = z.argmax()
    y[k] = -1.0
    checks.close(
        student.margin(w, X, y),
        oracle.margin(w, X, y),
        name="margin(w, X, y)",
        why=f"Here w gets sample {k} wrong, so that its y z is negative.",
        mistakes={
            COSINE: cosines(X, y, w).min(),
            "You took absolute values. The sign matters: it says whether the sample is on its right side.": (
                z.abs().min() / w.norm()
            ).item(),
            "You cut it off at 0. A negative margin tells how far the worst sample is on the wrong side.": 0.0,
        },
    )
