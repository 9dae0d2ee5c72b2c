"""The central difference of a function of one variable. Oracle: its closed form for a cube, exp and sin."""

import math

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.calculus.drawing import number, uniform
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import BY_HAND, DERIVATIVES

FORWARD = "This is the forward difference (f(x+h) - f(x)) / h. Step to both sides of x: f(x+h) and f(x-h)."
DISTANCE = "The distance from x-h to x+h is 2h, not h: divide by 2h."

exercise = Exercise("derivative", points=10, minutes=6, forbid=DERIVATIVES, instead=BY_HAND)


@exercise.check(points=4)
def central_formula(student, rng):
    "The central difference, with the given step."

    a, b, x, h = number(0.7, 1.3, rng), number(0.7, 1.3, rng), number(1, 3, rng), 0.25

    def cubic(x):
        return a * x**3 + b * x**2

    slope, right = 3 * a * x**2 + 2 * b * x, 3 * a * x**2 + 2 * b * x + a * h**2
    got = student.derivative(cubic, x, h)
    name = f"derivative(cubic, {x}, h={h})"
    if type(got) is float and abs(got - slope) < 0.04:
        checks.fail(
            f"{name} does not depend on h: it is close to the exact slope, {show.number(slope)}. Use the given h.",
            got=got,
            expected=right,
        )
    up, here, down = cubic(x + h), cubic(x), cubic(x - h)
    mistakes = {
        FORWARD: (up - here) / h,
        "This is the backward difference (f(x) - f(x-h)) / h. Step to both sides of x: f(x+h) and f(x-h).": (
            (here - down) / h
        ),
        DISTANCE: 2 * right,
        "You divided by 2 and multiplied by h: write / (2 * h), with brackets.": right * h**2,
        "Only f(x-h) is divided: put the whole difference in brackets.": up - down / (2 * h),
        "The sign is wrong: f(x+h) comes first.": -right,
        "Half steps: the points are x+h and x-h here, and the distance between them is 2h.": slope + a * h**2 / 4,
    }
    why = f"For f(x) = {a} x³ + {b} x² the central difference is exactly {3 * a:g} x² + {2 * b:g} x + {a} h²."
    checks.close(got, right, name=name, why=why, mistakes=mistakes)


@exercise.check(points=3, needs="central_formula")
def error_of_order_two(student, rng):
    "Halving h divides the error by four, and the default h is small."
    a, b, x = number(0.7, 1.3, rng), number(0.7, 1.2, rng), number(0.5, 1.2, rng)

    def growth(x):
        return a * math.exp(b * x)

    def wave(x):
        return a * math.sin(b * x)

    for f, slope in ((growth, lambda x: b * growth(x)), (wave, lambda x: a * b * math.cos(b * x))):
        exact = slope(x)
        found = [student.derivative(f, x, h) for h in (0.2, 0.1)]
        for h, got in zip((0.2, 0.1), found, strict=True):
            checks.close(got, exact, name=f"derivative({f.__name__}, {x}, h={h})", rtol=0.1)
        errors = [abs(float(got) - exact) for got in found]
        order = math.log2(errors[0] / errors[1]) if errors[1] else math.inf
        checks.that(
            1.9 < order < 2.1,
            f"For {f.__name__} at {x} the error falls like h^{order:.2f}; the central difference's falls like h².",
            got=f"errors {errors[0]:.3g} at h = 0.2, {errors[1]:.3g} at h = 0.1",
            expected="a quarter of the error at half the step",
        )
        default = student.derivative(f, x)
        checks.close(default, exact, name=f"derivative({f.__name__}, {x})", rtol=1e-8, why="with the default h=1e-5")


@exercise.check(points=2)
def tensors_elementwise(student, rng):
    "A tensor x gives a tensor of its dtype: each element's own derivative."
    for shape, dtype, h in (((2, 3), torch.float64, 1e-3), ((4,), torch.float32, 0.25)):
        x, a, b = uniform(-2, 2, shape, rng).to(dtype), number(0.7, 1.3, rng), number(0.7, 1.3, rng)

        def wave(x, a=a, b=b):
            return a * torch.sin(b * x)

        got = student.derivative(wave, x.clone(), h)
        expected = (wave(x + h) - wave(x - h)) / (2 * h)
        mistakes = {
            DISTANCE: 2 * expected,
            FORWARD: (wave(x + h) - wave(x)) / h,
        }
        name = f"derivative(wave, x, {h}) of {show.dtype(dtype)}"
        checks.close(got, expected, name=name, mistakes=mistakes)


@exercise.check(points=1, needs="tensors_elementwise")
def leaves_x_alone(student, rng):
    "The tensor x is the same after the call."
    x = uniform(-1, 1, (whole_number(rng, 1, 5), whole_number(rng, 1, 5)), rng)
    got = checks.leaves_alone(lambda x: student.derivative(torch.exp, x, 0.1), x=x)
    checks.close(got, x.exp() * math.sinh(0.1) / 0.1, name="derivative(exp, x, 0.1)")
