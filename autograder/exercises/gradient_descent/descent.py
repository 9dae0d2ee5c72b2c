"""Gradient descent: the path from w0. Oracle: its closed form on a quadratic valley, and elsewhere a loop."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import F32, F64, normal
from autograder.exercises.gradient_descent.drawing import integer, small, valley
from autograder.exercises.ready_made import OPTIMIZERS

exercise = Exercise(
    "gradient_descent",
    points=10,
    minutes=5,
    forbid=OPTIMIZERS,
    instead="Write the step yourself; the optimizers of torch.optim are only for comparison.",
)

SAME_TENSOR = (
    "Every row is the last point: the path holds the same tensor many times. "
    "Make a new one at each step, w = w - lr * grad(w)."
)


@exercise.check(points=2)
def path_starts_at_w0(student, rng):
    "The path has steps + 1 rows, and the first is w0."

    asked = []

    def grad(w):
        asked.append(w)
        return w

    for d, steps, start in ((1, 3, 1), (5, 4, 1), (2, 0, 1), (2, 5, 0)):  # the last begins at the minimum
        w0 = start * small(rng, d)
        path = student.gradient_descent(grad, w0.clone(), 0.5, steps)
        is_short = type(path) is torch.Tensor and not start and path.numel() < d * (steps + 1)
        checks.that(not is_short, "Your path ends where it no longer moves: it has a row for each step.", got=path)
        checks.tensor(path, name="path", shape=(steps + 1, d), dtype=F64)
        mistakes = {SAME_TENSOR: path[-1]} if steps else {}
        checks.close(path[0], w0, name="path[0]", why="The path begins at w0; here grad(w) = w.", mistakes=mistakes)
        still = "The path stays where it begins: each step goes against the gradient, w - lr * grad(w)."
        checks.that(not (steps and start) or bool(asked and (path.diff(dim=0) != 0).any()), still, got=path)


def quadratic_path(H, c, w0, lr, steps):
    """Where descent on the valley (w - c) . H (w - c) / 2 goes: w_k = c + (I - lr H)^k (w0 - c), in float64."""
    H, c, w0 = H.double(), c.double(), w0.double()
    M = torch.eye(len(c), dtype=F64) - lr * H
    return torch.stack([c + torch.linalg.matrix_power(M, k) @ (w0 - c) for k in range(steps + 1)])


def descent_mistakes(H, c, w0, lr, steps):
    right = quadratic_path(H, c, w0, lr, steps)
    k = torch.arange(steps + 1, dtype=F64)[:, None]
    return {
        "Every step uses the gradient at w0: compute it at the last point of the path.": (
            w0.double() - k * lr * (H.double() @ (w0 - c).double())
        ),
        "You climb: the gradient points uphill, so subtract it, w - lr * grad(w).": quadratic_path(
            H, c, w0, -lr, steps
        ),
        SAME_TENSOR: right[-1].expand(right.shape),
        "You left out the learning rate: one step is lr * grad(w).": quadratic_path(H, c, w0, 1.0, steps),
    }


@exercise.check(points=5, needs="path_starts_at_w0")
def follows_the_closed_form(student, rng):
    "In a quadratic valley every point of the path is where the theory predicts it."
    for d, dtype in ((1, F64), (3, F64), (5, F32)):
        H, c, w0 = (t.to(dtype) for t in (valley(rng, [0.5 + i for i in range(d)]), normal(rng, d), normal(rng, d)))
        lr, steps = 0.11, 12

        def grad(w, H=H, c=c):
            return H @ (w - c)

        checks.close(
            student.gradient_descent(grad, w0.clone(), lr, steps),
            quadratic_path(H, c, w0, lr, steps).to(dtype),
            name="path",
            why="w_k = c + (I - lr H)^k (w0 - c) when grad(w) = H (w - c).",
            mistakes=descent_mistakes(H, c, w0, lr, steps),
        )
    Bent(rng).check_path(student)


class Bent:
    """A valley whose gradient is not linear, H w + sin(3 w): no closed form leads through it. It keeps where it was
    asked."""

    lr = 0.1

    def __init__(self, rng):
        d, self.steps = integer(rng, 2, 4), integer(rng, 5, 12)
        self.H, self.w0 = valley(rng, [0.5 + i for i in range(d)]), normal(rng, d)
        self.asked: list[torch.Tensor] = []
        self.__name__ = "grad"

    def gradient(self, w):
        return self.H @ w + (3 * w).sin()

    def __call__(self, w):
        checks.tensor(w, name="the w that you pass to grad", shape=self.w0.shape)
        self.asked.append(w.clone())
        return self.gradient(w)

    def check_path(self, student) -> torch.Tensor:
        path, right = student.gradient_descent(self, self.w0.clone(), self.lr, self.steps), [self.w0]
        for _ in range(self.steps):
            right.append(right[-1] - self.lr * self.gradient(right[-1]))
        why = "Here the gradient is not linear in w: each step needs the gradient at the last point."
        checks.close(path, torch.stack(right), name="path", why=why)
        return path


@exercise.check(points=1, needs="follows_the_closed_form")
def one_gradient_per_step(student, rng):
    "The gradient is computed once per step: it takes most of the time."
    grad = Bent(rng)
    path = grad.check_path(student)
    checks.equal(len(grad.asked), grad.steps, name=f"calls of grad in {grad.steps} steps")
    where = "the points at which you asked for a gradient"
    checks.close(torch.stack(grad.asked), path[:-1], name=where, why="Each step begins at the last point of the path.")


@exercise.check(points=2, needs="follows_the_closed_form")
def leaves_w0_alone(student, rng):
    "Your function does not change its argument w0."
    d, steps = integer(rng, 1, 6), integer(rng, 1, 20)
    w0 = normal(rng, d)
    before = w0.clone()
    path = student.gradient_descent(lambda w: 2 * w, w0, 0.1, steps)
    checks.unchanged(w0, before, name="w0")
    checks.close(path, quadratic_path(2 * torch.eye(d), torch.zeros(d), before, 0.1, steps), name="path")
