"""The central difference of a function of one variable. Oracle: its closed form for a cube, exp and sin."""

import math

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.calculus.drawing import number, uniform
from autograder.exercises.ready_made import BY_HAND, DERIVATIVES

FORWARD = "This is the forward difference (f(x+h) - f(x)) / h. Step to both sides of x: f(x+h) and f(x-h)."
DISTANCE = "The distance from x-h to x+h is 2h, not h: divide by 2h."

exercise = Exercise("derivative", points=10, minutes=6, forbid=DERIVATIVES, instead=BY_HAND)


@exercise.check(points=4)
def central_formula(student, rng):
    "The central difference, with the given step."

    def cube(x):
        return x**3

    x, h = number(1, 3, rng), 0.25
    got = student.derivative(cube, x, h)
    name = f"derivative(cube, {x}, h={h})"
    if type(got) is float and abs(got - 3 * x**2) < 0.05:
        checks.fail(
            f"{name} does not depend on h: it is close to the exact 3x² = {show.number(3 * x**2)}. Use the given h.",
            got=got,
            expected=3 * x**2 + h**2,
        )
    mistakes = {
        FORWARD: 3 * x**2 + 3 * x * h + h**2,
        "This is the backward difference (f(x) - f(x-h)) / h. Step to both sides of x: f(x+h) and f(x-h).": 3 * x**2
        - 3 * x * h
        + h**2,
        DISTANCE: 2 * (3 * x**2 + h**2),
        "You divided by 2 and multiplied by h: write / (2 * h), with brackets.": (3 * x**2 + h**2) * h**2,
        "Only f(x-h) is divided: put the whole difference in brackets.": (x + h) ** 3 - (x - h) ** 3 / (2 * h),
        "The sign is wrong: f(x+h) comes first.": -(3 * x**2 + h**2),
        "Half steps: the points are x+h and x-h here, and the distance between them is 2h.": 3 * x**2 + h**2 / 4,
    }
    why = "For f(x) = x³ the central difference is exactly 3x² + h²."
    checks.close(got, 3 * x**2 + h**2, name=name, why=why, mistakes=mistakes)


@exercise.check(points=3, needs="central_formula")
def error_of_order_two(student, rng):
    "Halving h divides the error by four, and the default h is small."
    for f, exact in ((math.exp, math.exp), (math.sin, math.cos)):
        x = number(0.5, 1.2, rng)
        found = [student.derivative(f, x, h) for h in (0.2, 0.1)]
        for h, got in zip((0.2, 0.1), found, strict=True):
            checks.close(got, exact(x), name=f"derivative({f.__name__}, {x}, h={h})", rtol=0.1)
        errors = [abs(float(got) - exact(x)) for got in found]
        order = math.log2(errors[0] / errors[1]) if errors[1] else math.inf
        checks.that(
            1.9 < order < 2.1,
            f"For {f.__name__} at {x} the error falls like h^{order:.2f}; the central difference's falls like h².",
            got=f"errors {errors[0]:.3g} at h = 0.2, {errors[1]:.3g} at h = 0.1",
            expected="a quarter of the error at half the step",
        )
        default = student.derivative(f, x)
        checks.close(default, exact(x), name=f"derivative({f.__name__}, {x})", rtol=1e-8, why="with the default h=1e-5")


@exercise.check(points=2)
def tensors_elementwise(student, rng):
    "A tensor x gives a tensor of its dtype: each element's own derivative."
    for shape, dtype, h in (((2, 3), torch.float64, 1e-3), ((4,), torch.float32, 0.25)):
        x = uniform(-2, 2, shape, rng).to(dtype)
        got = student.derivative(torch.sin, x.clone(), h)
        expected = (torch.sin(x + h) - torch.sin(x - h)) / (2 * h)
        mistakes = {
            DISTANCE: 2 * expected,
            FORWARD: (torch.sin(x + h) - torch.sin(x)) / h,
        }
        name = f"derivative(torch.sin, x, {h}) of {show.dtype(dtype)}"
        checks.close(got, expected, name=name, mistakes=mistakes)


@exercise.check(points=1, needs="tensors_elementwise")
def leaves_x_alone(student, rng):
    "The tensor x is the same after the call."
    x = uniform(-1, 1, (4,), rng)
    before = x.clone()
    student.derivative(torch.exp, x, 0.1)
    checks.unchanged(x, before, name="x")
