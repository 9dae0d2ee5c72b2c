"""The mean squared error of a linear model and its gradient. Oracle: the mean of squares, and autograd, in float64."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import F32, F64, normal
from autograder.exercises.gradient_descent.drawing import integer, small
from autograder.exercises.ready_made import DERIVATIVES

SHAPES = "The shapes do not fit: X is (n, d), w is (d,) and the error is (n,), so X @ w is right, and X.T @ error."

exercise = Exercise(
    "mse_grad",
    points=10,
    minutes=6,
    functions=("mse_loss", "mse_grad"),
    forbid=(*DERIVATIVES, "aten::mse_loss", "aten::huber_loss", "aten::smooth_l1_loss"),
    instead="Write the formulas, for the loss and for its gradient.",
    meanings=dict.fromkeys(("size mismatch", "cannot be multiplied", "inconsistent"), SHAPES),
)


def regression(rng, n, d, dtype=F64):
    """Random w (d,), X (n, d), y (n,); whole numbers where n is small."""
    draw = small if n <= 3 else normal
    return draw(rng, d, dtype=dtype), draw(rng, n, d, dtype=dtype), draw(rng, n, dtype=dtype)


@exercise.check(points=3)
def loss_is_the_mean(student, rng):
    "mse_loss is the mean of the squared errors, one number."
    for n, d, dtype in ((3, 2, F64), (1, 1, F64), (30, 5, F32)):
        w, X, y = regression(rng, n, d, dtype)
        squares = (X.double() @ w.double() - y.double()) ** 2
        checks.close(
            student.mse_loss(w, X, y),
            float(squares.mean()),
            name="loss",
            rtol=2e-5 if dtype == F32 else 1e-9,
            mistakes={
                f"This is the sum over the {n} samples: divide by n, so that it does not grow with the data.": float(
                    squares.sum()
                ),
                "This is half the mean: the course's loss has no factor 1/2.": float(squares.mean() / 2),
                "This is the root of the loss: keep the square.": float(squares.mean().sqrt()),
                "These are absolute errors: square them.": float(squares.sqrt().mean()),
            },
        )


def autograd(w, X, y):
    w = w.detach().double().requires_grad_()  # its own: the student is handed w
    loss = torch.nn.functional.mse_loss(X.double() @ w, y.double())
    return torch.autograd.grad(loss, w)[0].detach()


def gradient_mistakes(exact, n):
    return {
        f"This is the gradient of the sum: divide by the number of samples, n = {n}.": n * exact,
        "The factor 2 is missing: the derivative of a square, u^2, is 2 u.": exact / 2,
        f"The factor 2 and the division by n = {n} are missing: the loss is a mean of squares.": n * exact / 2,
        "The sign is wrong: the error is X @ w - y, in this order.": -exact,
        "You divide by d, the number of weights: divide by n = len(y).": n * exact / len(exact),
    }


@exercise.check(points=5)
def gradient_equals_autograd(student, rng):
    "mse_grad is the gradient that float64 autograd finds."
    for n, d, dtype in ((3, 2, F64), (8, 3, F64), (40, 6, F32)):
        w, X, y = regression(rng, n, d, dtype)
        exact = autograd(w, X, y).to(dtype)
        checks.close(student.mse_grad(w, X, y), exact, name="gradient", mistakes=gradient_mistakes(exact, n))
    by_the_formula(student, rng)


def by_the_formula(student, rng) -> None:
    """Check the gradient where the loss is huge, and differences of the loss have no digits left.

    The formula is exact for whole numbers, and for a division by 8.
    """
    w, X, y = small(rng, 3), small(rng, 8, 3), small(rng, 8)
    one, other = torch.randperm(len(y), generator=rng)[:2].tolist()
    X[other], y[one], y[other] = X[one], 2.0**40, -(2.0**40)
    exact = autograd(w, X, y)
    checks.close(
        student.mse_grad(w, X, y),
        exact,
        name="gradient",
        why="Two rows of X are the same, and y is 2^40 and -2^40 there: the two nearly cancel in the gradient, and the "
        "loss is more than 2^77. The formula is exact here; differences of the loss lose all digits.",
    )


@exercise.check(points=1, needs="gradient_equals_autograd")
def one_sample_one_weight(student, rng):
    "The gradient keeps the shape (d,) for one weight and for one sample."
    for n, d in ((1, 4), (6, 1), (1, 1)):
        w, X, y = regression(rng, n, d)
        exact = autograd(w, X, y)
        checks.close(student.mse_grad(w, X, y), exact, name="gradient")


@exercise.check(points=1, needs=("loss_is_the_mean", "gradient_equals_autograd"))
def data_stay_as_they_were(student, rng):
    "Neither function changes w, X or y."
    for n, d in ((5, 2), (integer(rng, 2, 40), integer(rng, 1, 6))):
        w, X, y = regression(rng, n, d)
        before = [t.clone() for t in (w, X, y)]
        loss, gradient = student.mse_loss(w, X, y), student.mse_grad(w, X, y)
        for value, old, name in zip((w, X, y), before, "wXy", strict=True):
            checks.unchanged(value, old, name=name)
        checks.close(loss, float(((X @ w - y) ** 2).mean()), name="loss")
        checks.close(gradient, autograd(w, X, y), name="gradient")
