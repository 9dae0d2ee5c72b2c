"""The gradient by central differences, coordinate by coordinate. Oracle: autograd in float64."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.calculus.drawing import number, uniform
from autograder.exercises.calculus.functions import autograd, drawn, mixed, product, quadratic, rosenbrock, sphere
from autograder.exercises.ready_made import BY_HAND, DERIVATIVES

exercise = Exercise("gradient", points=15, minutes=10, uses=("derivative",), forbid=DERIVATIVES, instead=BY_HAND)


def log_sum_exp(x, a, b, _):
    return a * torch.logsumexp(b * x, 0)


FORWARD = "This is the forward difference: step to both sides of each coordinate."
SIX = ((quadratic, 2), (product, 4), (sphere, 5), (mixed, 3), (log_sum_exp, 6), (rosenbrock, 4))


@exercise.check(points=6)
def six_functions(student, rng):
    "The gradient of six functions, against torch's autograd."
    for family, n in SIX:
        f, x = drawn(family, rng), uniform(0.5, 1.5, (n,), rng)
        got, expected = student.gradient(f, x.clone()), autograd(f, x)
        mistakes = {
            "Every element is the sum of all partial derivatives: move one coordinate at a time, not all together.": (
                expected.sum().expand(n).clone()
            ),
            FORWARD: forward_differences(f, x, 1e-5),
            "The earlier coordinates were still moved: put x[i] back before you move the next.": never_put_back(
                f, x.clone(), 1e-5
            ),
            "Twice the gradient: the distance from x-h to x+h is 2h.": 2 * expected,
            "Half the gradient: the distance from x to x+h is h.": expected / 2,
        }
        checks.close(got, expected, name=f"gradient({f.__name__}, x)", mistakes=mistakes, rtol=1e-6)


def forward_differences(f, x: torch.Tensor, h: float) -> torch.Tensor:
    return torch.stack([(f(x + step) - f(x)) / h for step in h * torch.eye(len(x), dtype=x.dtype)])


def never_put_back(f, x: torch.Tensor, h: float) -> torch.Tensor:
    """What a loop finds that leaves each coordinate at x[i] - h."""
    found = torch.zeros_like(x)
    for i in range(len(x)):
        x[i] += h
        up = f(x)
        x[i] -= 2 * h
        found[i] = (up - f(x)) / (2 * h)
    return found


@exercise.check(points=3)
def any_shape(student, rng):
    "x may have any shape, the gradient has the same, and each element takes two evaluations of f."
    for shape in ((), (2, 3), (2, 1, 3)):
        x = uniform(-1, 1, shape, rng)
        weights, rate = uniform(1, 2, shape, rng), number(0.7, 1.3, rng)

        def weighted(x, weights=weights, rate=rate):
            return (weights * torch.exp(rate * x)).sum()

        f = checks.counted(weighted)
        got = student.gradient(f, x.clone())
        checks.close(
            got,
            weights * rate * (rate * x).exp(),
            name=f"the gradient for x of shape {shape}",
            why=f"f(x) = Σ w exp({rate} x)",
            rtol=1e-6,
        )
        checks.that(
            f.calls <= 2 * x.numel(),
            f"For x of shape {shape} f was called {f.calls} times: twice for each element, {2 * x.numel()}, is enough.",
        )
    x = uniform(-1, 1, (3,), rng)
    got = student.gradient(lambda x: x.exp().sum().item(), x.clone())
    if isinstance(got, torch.Tensor) and got.dtype == torch.float32:
        got = got.double()  # torch's dtype for what it makes of floats: no sentence asks for another
    checks.close(got, x.exp(), name="the gradient where f returns a float", rtol=1e-6)


@exercise.check(points=3)
def central_with_the_given_step(student, rng):
    "Central differences with the given h."
    a, b = number(0.7, 1.3, rng), number(0.7, 1.3, rng)

    def cubes(x):
        return (a * x**3 + b * x**2).sum()

    x, h = uniform(0.5, 1.5, (3,), rng), 0.25
    slope = 3 * a * x**2 + 2 * b * x
    other = (3 * a * x + b) * h  # of the second derivative, which one-sided differences have
    got = student.gradient(cubes, x.clone(), h)
    mistakes = {
        FORWARD: slope + other + a * h**2,
        "This is the backward difference: step to both sides of each coordinate.": slope - other + a * h**2,
        "This is the exact gradient: h is not used. Measure with the h you are given.": slope,
    }
    why = f"For Σ {a} x³ + {b} x² the central difference is exactly the slope plus {a} h²."
    checks.close(got, slope + a * h**2, name=f"gradient(cubes, x, h={h})", why=why, mistakes=mistakes, rtol=1e-6)


@exercise.check(points=3, needs="six_functions")
def x_restored(student, rng):
    "x is the same after the call, to the last bit."
    x = uniform(-3, 3, (50,), rng) * torch.logspace(-3, 3, 50, dtype=torch.float64)
    got = restores(student, sphere, x)
    # sphere is up to 1e7 here: its rounding, divided by 2h, is below 0.01
    checks.close(got, 2 * x, name="gradient(sphere, x)", atol=0.1)
    for family, n in SIX:  # x of the sizes that other checks have
        f, x = drawn(family, rng), uniform(0.5, 1.5, (n,), rng)
        checks.close(restores(student, f, x), autograd(f, x), name=f"gradient({f.__name__}, x)", rtol=1e-6)


def restores(student, f, x: torch.Tensor) -> torch.Tensor:
    """Return the student's gradient of `f` at `x`, after a check that x has not changed."""
    before = x.clone()
    got = student.gradient(f, x)
    left = (x - before).abs().max().item() if x.shape == before.shape else math.inf
    checks.that(
        left == 0 or left > 1e-6,
        f"x has changed by up to {left:.1g}. In floating point (x + h) - 2h + h need not be x again; "
        "keep the old value and put it back, or work on a copy.",
        got=f"after the call x differs in {int((x != before).sum())} of {x.numel()} elements",
        expected="x to the last bit",
    )
    checks.unchanged(x, before, name="x")
    return got
