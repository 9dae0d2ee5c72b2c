"""The largest learning rate at which descent converges. Oracle: the Hessian's eigenvalues, which are chosen."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import F32, F64, normal
from autograder.exercises.gradient_descent.drawing import integer, valley

exercise = Exercise("max_stable_lr", points=5, minutes=8)


@exercise.check(points=1)
def diagonal_valley(student, rng):
    "For a diagonal Hessian the limit is 2 over its largest entry."
    curvatures = torch.tensor([0.3, 4.0, 1.0], dtype=F64)[torch.randperm(3, generator=rng)] * (1 + integer(rng, 0, 4))
    checks.close(
        student.max_stable_lr(torch.diag(curvatures)),
        2 / float(curvatures.max()),
        name="limit",
        mistakes={
            "This is 1/λmax: there a step lands on the valley floor. It may overshoot by as much again: 2/λmax.": 1
            / float(curvatures.max()),
            "This is 2/λmin: the steepest direction diverges first, so the largest eigenvalue counts.": 2
            / float(curvatures.min()),
            "This is λmax itself: the limit of the learning rate is 2/λmax.": float(curvatures.max()),
        },
    )


def curvatures_of(rng, d: int) -> list[float]:
    """Drawn eigenvalues in hundredths; the last one is clearly the largest."""
    top = integer(rng, 300, 1500)
    return [integer(rng, 20, top // 2) / 100 for _ in range(d - 1)] + [top / 100]


@exercise.check(points=2)
def turned_valley(student, rng):
    "For a Hessian that is not diagonal, the largest eigenvalue sets the limit."
    for d in (2, 4, integer(rng, 3, 6)):
        curvatures = curvatures_of(rng, d)
        H = valley(rng, curvatures)
        checks.close(
            student.max_stable_lr(H),
            2 / max(curvatures),
            name="limit",
            why=f"The eigenvalues of this Hessian are {', '.join(map(str, curvatures))}.",
            mistakes={
                "You took the largest entry on the diagonal: the steepest direction need not lie along an axis. "
                "Use the largest eigenvalue, torch.linalg.eigvalsh.": 2 / float(H.diagonal().max()),
                "You divided by the trace, the sum of all eigenvalues: only the largest counts.": 2 / float(H.trace()),
                "This is 1/λmax: there a step lands on the valley floor. It may overshoot by as much again: 2/λmax.": 1
                / max(curvatures),
                "This is 2/λmin: the steepest direction diverges first, so the largest eigenvalue counts.": 2
                / min(curvatures),
            },
        )


@exercise.check(points=1)
def descent_obeys_it(student, rng):
    "Descent converges 1 % below your limit and diverges 1 % above it."
    H, w0 = valley(rng, curvatures_of(rng, 4)), torch.ones(4, dtype=F64)
    limit = student.max_stable_lr(H)
    checks.that(
        checks.is_number(limit) or (type(limit) is torch.Tensor and limit.numel() == 1 and not limit.is_complex()),
        "The limit must be one number, a float or a 0-d tensor.",
        got=limit,
    )

    def distance(lr, steps=2000):
        M = torch.eye(4, dtype=F64) - lr * H
        end = float((torch.linalg.matrix_power(M, steps) @ w0).norm())
        return end if math.isfinite(end) else math.inf

    below, above = distance(0.99 * float(limit)), distance(1.01 * float(limit))
    checks.that(
        below < 1e-6,
        f"With 99 % of your limit, lr = {0.99 * float(limit):.4g}, descent does not converge: after 2000 steps it is "
        f"{below:.3g} from the minimum. Your limit is too high.",
    )
    checks.that(
        above > 1e6,
        f"With 101 % of your limit, lr = {1.01 * float(limit):.4g}, descent still converges: after 2000 steps it is "
        f"{above:.3g} from the minimum. Your limit is too low.",
    )


@exercise.check(points=1)
def flat_directions_and_float32(student, rng):
    "Directions without curvature set no limit; float32 data are fine."
    X = normal(rng, 12, 30, dtype=F32)  # fewer samples than weights: 18 eigenvalues are zero, some -1e-7 by rounding
    H = 2 / 12 * X.T @ X
    exact = 2 / float(torch.linalg.eigvalsh(H.double())[-1])
    checks.close(student.max_stable_lr(H), exact, name="limit", rtol=1e-4)
