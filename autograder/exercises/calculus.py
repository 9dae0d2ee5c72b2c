"""Lab 01, calculus: exercises and checks. Oracles: closed forms and torch's autograd in float64."""

import math

import numpy as np
import torch

from autograder import checks, show
from autograder.authoring import Lab
from autograder.sessions.errors import StudentError
from autograder.sessions.handle import Handle

lab = Lab("calculus", number=1, title="The derivative, measured")

derivative = lab.exercise("derivative", points=15, minutes=6)
best_step = lab.exercise("best_step", points=15, minutes=12)
logistic = lab.exercise("logistic", points=10, minutes=7, functions=("logistic", "logistic_grad"))
gradient = lab.exercise("gradient", points=15, minutes=10, uses=("derivative",))
dual = lab.exercise("Dual", points=25, minutes=20)
chain_gradient = lab.exercise("chain_gradient", points=10, minutes=5)
grad_check = lab.exercise("grad_check", points=10, minutes=8, uses=("gradient",))


def uniform(low: float, high: float, shape, rng) -> torch.Tensor:
    """Float64 numbers in [low, high)."""
    return low + (high - low) * torch.rand(shape, generator=rng, dtype=torch.float64)


def number(low: float, high: float, rng) -> float:
    """A number of two decimals, so that a message can be followed by hand."""
    return round(uniform(low, high, (), rng).item(), 2)


def autograd(f, x: torch.Tensor) -> torch.Tensor:
    """The gradient of `f(x).sum()` by torch, the oracle of this lab."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(f(x).sum(), x)[0]


def wide(f):
    """`f` for tensors, which also takes a plain number and then computes in float64."""

    def function(x):
        return f(x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.float64))

    function.__name__ = getattr(f, "__name__", "f")
    return function


# ------------------------------------------------------------------------------------------- derivative


@derivative.check(points=6)
def central_formula(student, rng):
    "The central difference, with the step that was given."

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
        "This is the forward difference (f(x+h) - f(x)) / h. Step to both sides of x: f(x+h) and f(x-h).": 3 * x**2
        + 3 * x * h
        + h**2,
        "This is the backward difference (f(x) - f(x-h)) / h. Step to both sides of x: f(x+h) and f(x-h).": 3 * x**2
        - 3 * x * h
        + h**2,
        "From x-h to x+h it is 2h, not h: divide by 2h.": 2 * (3 * x**2 + h**2),
        "You divided by 2 and multiplied by h: write / (2 * h), with brackets.": (3 * x**2 + h**2) * h**2,
        "Only f(x-h) is divided: put the whole difference in brackets.": (x + h) ** 3 - (x - h) ** 3 / (2 * h),
        "The sign is turned round: f(x+h) comes first.": -(3 * x**2 + h**2),
        "Half steps: the points are x+h and x-h here, and the distance between them is 2h.": 3 * x**2 + h**2 / 4,
    }
    why = "For f(x) = x³ the central difference is exactly 3x² + h²."
    checks.close(got, 3 * x**2 + h**2, name=name, why=why, mistakes=mistakes)


@derivative.check(points=4, needs="central_formula")
def error_of_order_two(student, rng):
    "Halving h divides the error by four, and the default h is small."
    for f, exact in ((math.exp, math.exp), (math.sin, math.cos)):
        x = number(0.5, 1.2, rng)
        errors = [abs(student.derivative(f, x, h) - exact(x)) for h in (0.2, 0.1)]
        order = math.log2(errors[0] / errors[1]) if errors[1] else math.inf
        checks.that(
            1.9 < order < 2.1,
            f"For {f.__name__} at {x} the error falls like h^{order:.2f}; the central difference's falls like h².",
            got=f"errors {errors[0]:.3g} at h = 0.2, {errors[1]:.3g} at h = 0.1",
            expected="a quarter of the error at half the step",
        )
        default = student.derivative(f, x)
        checks.close(default, exact(x), name=f"derivative({f.__name__}, {x})", rtol=1e-8, why="with the default h=1e-5")


@derivative.check(points=3)
def tensors_elementwise(student, rng):
    "A tensor x gives a tensor: each element's own derivative."
    x = uniform(-2, 2, (2, 3), rng)
    got = student.derivative(torch.sin, x.clone(), 1e-3)
    expected = (torch.sin(x + 1e-3) - torch.sin(x - 1e-3)) / 2e-3
    mistakes = {
        "You divided by h where the distance is 2h.": 2 * expected,
        "This is the forward difference: step to both sides of x.": (torch.sin(x + 1e-3) - torch.sin(x)) / 1e-3,
    }
    checks.close(got, expected, name="derivative(torch.sin, x, 1e-3)", mistakes=mistakes)


@derivative.check(points=2, needs="tensors_elementwise")
def leaves_x_alone(student, rng):
    "The tensor x is the same after the call."
    x = uniform(-1, 1, (4,), rng)
    before = x.clone()
    student.derivative(torch.exp, x, 0.1)
    checks.unchanged(x, before, name="x")


# -------------------------------------------------------------------------------------------- best_step


def sin(x):
    return torch.sin(x)


def exp(x):
    return torch.exp(x)


def cosh(x):
    return torch.cosh(x)


def sqrt(x):
    return torch.sqrt(x)


def log(x):
    return torch.log(x)


def sin_40x(x):
    return torch.sin(40 * x)


def exp_30x(x):
    return torch.exp(30 * x)


SWEEP = torch.logspace(-14, 3.5, 141, dtype=torch.float64)  # eight steps to a decade
NEAR = torch.logspace(-0.15, 0.15, 41, dtype=torch.float64)


def typical_error(f, x: float, h: torch.Tensor, dtype) -> torch.Tensor:
    """Root mean square error of the central difference over steps around each h, so that no lucky h counts."""
    h = (h[:, None] * NEAR).to(dtype)
    point = torch.tensor(x, dtype=dtype)
    errors = ((f(point + h) - f(point - h)) / (2 * h)).double() - autograd(f, point.double())
    return errors.square().mean(1).sqrt().nan_to_num(math.inf, math.inf)


def step_is_good(student, f, x: float, dtype, advice: str = "") -> None:
    """The student's step gives at most ten times the error of the best step of a sweep."""
    call = f"best_step({f.__name__}, {x}, torch.{show.dtype(dtype)})"
    h = student.best_step(wide(f), x, dtype)
    if type(h) is torch.Tensor and h.dim() == 0:
        h = h.item()
    checks.that(type(h) in (int, float), f"{call} is {show.an(show.type_name(h))}, expected a number.", got=h)
    reason = " A step proportional to x vanishes at x = 0." if x == 0 and h == 0 else ""
    checks.that(0 < h < math.inf, f"{call} is {show.number(h)}, expected a positive, finite step.{reason}", got=h)
    error = typical_error(f, x, torch.tensor([h], dtype=torch.float64), dtype).item()
    sweep = typical_error(f, x, SWEEP, dtype)
    least, best = sweep.min().item(), SWEEP[sweep.argmin()].item()
    side = "small: rounding drowns the difference" if h < best else "large: the curve bends within it"
    checks.that(
        error <= 10 * least,
        f"{call}: your h is too {side}.{' ' + advice if advice else step_mistake(h, dtype)}",
        got=f"h = {h:.2g}, typical error {error:.2g}",
        expected=f"at most 10 times {least:.2g}, which h near {best:.1g} gives",
    )


def step_mistake(h: float, dtype) -> str:
    """A sentence where the wrong step for an ordinary function is that of another rule or another precision."""
    eps = torch.finfo(dtype).eps
    other = torch.float64 if dtype == torch.float32 else torch.float32
    steps = {
        "The square root of eps suits the forward difference; the central one wants the cube root.": eps ** (1 / 2),
        f"It would suit {show.dtype(other)}: take eps from torch.finfo(dtype).": torch.finfo(other).eps ** (1 / 3),
    }
    return next((" " + sentence for sentence, step in steps.items() if step / 3 < h < step * 3), "")


@best_step.check(points=4)
def ordinary_functions_float64(student, rng):
    "float64: sin, exp and cosh near 1."
    for f in (sin, exp, cosh):
        step_is_good(student, f, number(0.6, 1.4, rng), torch.float64)


@best_step.check(points=4)
def ordinary_functions_float32(student, rng):
    "float32 wants another step than float64."
    for f in (sin, exp, cosh):
        step_is_good(student, f, number(0.6, 1.4, rng), torch.float32)


@best_step.check(points=4)
def any_size_of_x(student, rng):
    "The step fits x = 4,000, x = 0.001, x = 0 and negative x."
    advice = "This x is far from 1: let the step grow and shrink with |x|."
    for dtype in (torch.float64, torch.float32):
        step_is_good(student, sqrt, number(3000, 5000, rng), dtype, advice)
        step_is_good(student, log, 0.001, dtype, advice)
        step_is_good(student, exp, 0.0, dtype)
        step_is_good(student, cosh, number(-1.5, -1, rng), dtype)


@best_step.check(points=3)
def quick_functions(student, rng):
    "The step fits a function that bends quickly: sin 40x, e^30x."
    for dtype in (torch.float64, torch.float32):
        for f in (sin_40x, exp_30x):
            step_is_good(
                student, f, number(0.99, 1.01, rng), dtype, "This f bends quickly: its third derivative has a say."
            )


# --------------------------------------------------------------------------------------------- logistic


@logistic.check(points=3)
def logistic_values(student, rng):
    "logistic(x) = 1 / (1 + e^-x) for a tensor, x untouched."
    x = uniform(-5, 5, (3, 2), rng)
    before = x.clone()
    got = student.logistic(x)
    mistakes = {
        "This is 1 / (1 + e^x): the exponent is -x.": torch.sigmoid(-x),
        "This is tanh: it runs from -1 to 1, the logistic function from 0 to 1.": torch.tanh(x),
        "This is the derivative f(1-f); the function itself is asked for.": torch.sigmoid(x) * torch.sigmoid(-x),
    }
    checks.close(got, torch.sigmoid(x), name="logistic(x)", mistakes=mistakes)
    checks.unchanged(x, before, name="x")


@logistic.check(points=4)
def no_overflow(student, rng):
    "No overflow at ±1000, in float64 and in float32."
    for dtype in (torch.float64, torch.float32):
        x = torch.tensor([-1000.0, -90.0, 0.0, 90.0, 1000.0], dtype=dtype)
        got = student.logistic(x)
        if type(got) is torch.Tensor and got.isnan().any():
            at = (
                show.number(x[got.isnan().reshape(-1)[:5].nonzero()[0, 0]].item())
                if got.shape == x.shape
                else "large x"
            )
            checks.fail(
                f"logistic({at}) is nan in {show.dtype(dtype)}: e^1000 is inf, and inf / inf is not a number. "
                "Let the exponential be only of numbers that are not positive, or divide 1 by it.",
                got=got,
                expected=torch.sigmoid(x),
            )
        checks.close(got, torch.sigmoid(x), name="logistic(x)", why=f"x = {show.show(x)}")


@logistic.check(points=3)
def slope_from_the_output(student, rng):
    "logistic_grad(y) takes the output y = f(x) and gives f'(x)."
    x = uniform(-4, 4, (5,), rng)
    y = torch.sigmoid(x)
    got = student.logistic_grad(y.clone())
    twice = torch.sigmoid(y)
    mistakes = {
        "You applied the logistic function once more: y already is f(x). The slope is y (1 - y).": twice * (1 - twice),
        "This is y (1 + y): the rule is f' = f (1 - f).": y * (1 + y),
        "The sign is turned round: the logistic function grows everywhere.": -y * (1 - y),
        "This is 1 - y² (the rule of tanh): the logistic function's is y (1 - y).": 1 - y**2,
    }
    checks.close(got, autograd(torch.sigmoid, x), name="logistic_grad(y)", mistakes=mistakes)


# --------------------------------------------------------------------------------------------- gradient


def quadratic(x):
    return x[0] ** 2 + x[0] * x[1] + x[1] ** 2


def product(x):
    return x.prod()


def sphere(x):
    return (x**2).sum()


def mixed(x):
    return torch.sin(x[0]) * torch.exp(x[1]) + x[2] ** 3


def log_sum_exp(x):
    return torch.logsumexp(x, 0)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


SIX = ((quadratic, 2), (product, 4), (sphere, 5), (mixed, 3), (log_sum_exp, 6), (rosenbrock, 4))


@gradient.check(points=6)
def six_functions(student, rng):
    "The gradient of six functions, against torch's autograd."
    for f, n in SIX:
        x = uniform(0.5, 1.5, (n,), rng)
        got, expected = student.gradient(f, x.clone()), autograd(f, x)
        mistakes = {
            "Every element is the sum of all partial derivatives: move one coordinate at a time, not all together.": (
                expected.sum().expand(n).clone()
            ),
            "This is the forward difference: step to both sides of each coordinate.": forward_differences(f, x, 1e-5),
            "The earlier coordinates were still moved: put x[i] back before you go on to the next.": never_put_back(
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


@gradient.check(points=3)
def any_shape(student, rng):
    "x may have any shape, and the gradient has the same."
    for shape in ((), (2, 3), (2, 1, 3)):
        x = uniform(-1, 1, shape, rng)
        weights = uniform(1, 2, shape, rng)

        def weighted(x, weights=weights):
            return (weights * torch.exp(x)).sum()

        got = student.gradient(weighted, x.clone())
        checks.close(
            got, weights * x.exp(), name=f"the gradient for x of shape {shape}", why="f(x) = Σ w eˣ", rtol=1e-6
        )


@gradient.check(points=3)
def central_with_the_given_step(student, rng):
    "Central differences with the h that was given."

    def cubes(x):
        return (x**3).sum()

    x, h = uniform(0.5, 1.5, (3,), rng), 0.25
    got = student.gradient(cubes, x.clone(), h)
    mistakes = {
        "This is the forward difference: step to both sides of x.": 3 * x**2 + 3 * x * h + h**2,
        "This is the backward difference: step to both sides of x.": 3 * x**2 - 3 * x * h + h**2,
        "This is the exact gradient: h is not used. Measure with the h you are given.": 3 * x**2,
    }
    why = "For Σ x³ the central difference is exactly 3x² + h²."
    checks.close(got, 3 * x**2 + h**2, name=f"gradient(cubes, x, h={h})", why=why, mistakes=mistakes, rtol=1e-6)


@gradient.check(points=3, needs="six_functions")
def x_restored(student, rng):
    "x is the same after the call, to the last bit."
    x = uniform(-3, 3, (50,), rng) * torch.logspace(-3, 3, 50, dtype=torch.float64)
    before = x.clone()
    student.gradient(sphere, x)
    left = (x - before).abs().max().item() if x.shape == before.shape else math.inf
    checks.that(
        left == 0 or left > 1e-6,
        f"x is not quite what it was: up to {left:.1g} away. In floating point (x + h) - 2h + h need not be x again; "
        "keep the old value and put it back, or work on a copy.",
        got=f"after the call x differs in {int((x != before).sum())} of 50 elements",
        expected="x to the last bit",
    )
    checks.unchanged(x, before, name="x")


# ------------------------------------------------------------------------------------------------- Dual


def agree(student, rng, text: str, f, mistakes=None, exchanged=None) -> None:
    """`f(x, y)` of two of the student's Duals has the value and the slope that torch finds.

    `mistakes` maps a sentence to a function of (x, y, dx, dy) that gives the slope which the mistake would give;
    `exchanged` is `f` with its operands the wrong way round.
    """
    x, y = number(0.5, 2.5, rng), number(0.5, 2.5, rng)
    dx, dy = number(0.3, 2, rng), -number(0.3, 2, rng)
    point, direction = (torch.tensor(pair, dtype=torch.float64) for pair in ((x, y), (dx, dy)))
    value, slope = f(*point), autograd(lambda p: f(p[0], p[1]), point) @ direction
    b = student.Dual(y, dy) if "y" in text else None
    a = student.Dual(x, dx)
    there = f"{text} with x = Dual({x}, {dx})" + (f" and y = Dual({y}, {dy})" if "y" in text else "")
    result = evaluated(lambda: f(a, b), text, there)
    named = {sentence: wrong(*point, *direction).item() for sentence, wrong in (mistakes or {}).items()}
    turned = (
        "The operands are exchanged: in a reflected method such as __rsub__(self, other), other stands on the left."
    )
    swapped = {turned: exchanged(*point).item()} if exchanged else {}
    checks.close(result.value, value.item(), name=f"the value of {there}", rtol=1e-12, mistakes=swapped)
    checks.close(result.slope, slope.item(), name=f"the slope of {there}", rtol=1e-12, mistakes=named)
    for operand, name, kept in ((a, "x", (x, dx)), (b, "y", (y, dy))):
        now = (operand.value, operand.slope) if operand is not None else kept
        checks.that(
            checks.same(now, kept), f"{text} changed its operand {name}; make a new Dual.", got=now, expected=kept
        )


def evaluated(formula, text: str, there: str) -> Handle:
    """The Dual that a formula gives; a missing operator and another type are told by name."""
    try:
        result = formula()
    except StudentError as error:
        if "unsupported operand" not in error.text and "has no attribute" not in error.text:
            raise
        advice = ""
        if text[0].isdigit():
            advice = " With a number on the left Python calls a reflected method of x: __radd__, __rsub__, ..."
        elif "'int'" in error.text or "'float'" in error.text:
            advice = " A plain number is a constant: make it a Dual of slope 0 first."
        checks.fail(f"Your Dual cannot compute {text}: {error.text}.{advice}", got=error.text, expected="a Dual")
    if type(result) is not Handle:
        kind = show.an(show.type_name(result))
        checks.fail(f"{there} gave {kind}, expected a Dual: return Dual(value, slope).", got=result)
    return result


@dual.check(points=4)
def sums(student, rng):
    "Sums, differences and -x, with constants on either side."
    agree(student, rng, "x + y", lambda x, y: x + y)
    agree(student, rng, "x - y", lambda x, y: x - y, {"The slope of a difference is x' - y'.": plus})
    agree(student, rng, "-x", lambda x, y: -x, {"The slope of -x is -x': turn it round too.": lambda x, y, u, v: u})
    constant = {"A constant has slope 0: it adds nothing to the slope.": lambda x, y, u, v: u + 1}
    agree(student, rng, "x + 3", lambda x, y: x + 3, constant)
    agree(student, rng, "3 + x", lambda x, y: 3 + x, constant)
    agree(student, rng, "x - 3", lambda x, y: x - 3, constant)
    turned = {"3 - x falls when x grows: its slope is -x'.": lambda x, y, u, v: u}
    agree(student, rng, "3 - x", lambda x, y: 3 - x, turned, exchanged=lambda x, y: x - 3)


def plus(x, y, u, v):
    return u + v


@dual.check(points=4)
def products(student, rng):
    "Products by the product rule, with constants on either side."
    mistakes = {
        "You multiplied the slopes: the product rule is (fg)' = f'g + fg'.": lambda x, y, u, v: u * v,
        "The sign in the middle: the product rule is (fg)' = f'g + fg'.": lambda x, y, u, v: u * y - x * v,
        "Each slope goes with the other factor's value: (fg)' = f'g + fg'.": lambda x, y, u, v: u * x + y * v,
    }
    agree(student, rng, "x * y", lambda x, y: x * y, mistakes)
    constant = {"The constant's slope is 0, but its value still multiplies x'.": lambda x, y, u, v: u}
    agree(student, rng, "x * 3", lambda x, y: x * 3, constant)
    agree(student, rng, "0.5 * x", lambda x, y: 0.5 * x, constant)
    agree(student, rng, "x * x", lambda x, y: x * x)


@dual.check(points=5)
def quotients(student, rng):
    "Quotients by the quotient rule, with constants on either side."
    mistakes = {
        "The sign in the middle: the quotient rule is (f/g)' = (f'g - fg') / g².": lambda x, y, u, v: (
            (u * y + x * v) / y**2
        ),
        "The order: the quotient rule is (f/g)' = (f'g - fg') / g², with f'g first.": lambda x, y, u, v: (
            (x * v - u * y) / y**2
        ),
        "The square is missing below: (f/g)' = (f'g - fg') / g².": lambda x, y, u, v: (u * y - x * v) / y,
        "You divided the slopes: the quotient rule is (f/g)' = (f'g - fg') / g².": lambda x, y, u, v: u / v,
    }
    agree(student, rng, "x / y", lambda x, y: x / y, mistakes)
    agree(student, rng, "x / 4", lambda x, y: x / 4)
    reciprocal = {
        "2 / x falls when x grows: its slope is -2 x' / x².": lambda x, y, u, v: 2 * u / x**2,
    }
    agree(student, rng, "2 / x", lambda x, y: 2 / x, reciprocal, exchanged=lambda x, y: x / 2)


@dual.check(points=4)
def powers(student, rng):
    "Powers: x ** n for any number n, and c ** x."
    for n in (3, 0.5, -2):
        mistakes = {
            "The chain rule: multiply by x', the slope that x brings along.": lambda x, y, u, v, n=n: n * x ** (n - 1),
            "The exponent goes down by one: n x^(n-1) x'.": lambda x, y, u, v, n=n: n * x**n * u,
            "The factor n is missing: n x^(n-1) x'.": lambda x, y, u, v, n=n: x ** (n - 1) * u,
        }
        agree(student, rng, f"x ** {n}", lambda x, y, n=n: x**n, mistakes)
    mistakes = {
        "The factor ln 2 is missing: (c^x)' = c^x ln(c) x'.": lambda x, y, u, v: 2**x * u,
        "The chain rule: (c^x)' = c^x ln(c) x'.": lambda x, y, u, v: 2**x * math.log(2),
        "Here the exponent moves, not the base: (c^x)' = c^x ln(c) x'.": lambda x, y, u, v: x * 2 ** (x - 1) * u,
    }
    agree(student, rng, "2 ** x", lambda x, y: 2**x, mistakes, exchanged=lambda x, y: x**2)
    zero = student.Dual(0.0, 1.0) ** 2
    checks.close(zero.slope, 0.0, name="the slope of x ** 2 with x = Dual(0.0, 1.0)", atol=1e-12)


@dual.check(points=4)
def elementary_functions(student, rng):
    "x.exp(), x.log() and x.sin(), with the chain rule."
    chain = "The chain rule: multiply by x', the slope that x brings along."
    agree(student, rng, "x.exp()", lambda x, y: x.exp(), {chain: lambda x, y, u, v: x.exp()})
    mistakes = {chain: lambda x, y, u, v: 1 / x, "The derivative of ln x is 1/x.": lambda x, y, u, v: x.log() * u}
    agree(student, rng, "x.log()", lambda x, y: x.log(), mistakes)
    mistakes = {
        chain: lambda x, y, u, v: x.cos(),
        "The derivative of sin is cos, with a plus.": lambda x, y, u, v: -x.cos() * u,
        "This is sin(x) x': the derivative of sin is cos.": lambda x, y, u, v: x.sin() * u,
    }
    agree(student, rng, "x.sin()", lambda x, y: x.sin(), mistakes)


@dual.check(points=4, needs=("sums", "products", "quotients", "powers", "elementary_functions"))
def compositions(student, rng):
    "Whole formulas, to twelve digits."
    agree(student, rng, "1 / (1 + (-x).exp())", lambda x, y: 1 / (1 + (-x).exp()))
    agree(student, rng, "(x * y).sin() / (x ** 2 + 1)", lambda x, y: (x * y).sin() / (x**2 + 1))
    agree(student, rng, "(x * x.log()).exp()", lambda x, y: (x * x.log()).exp())
    agree(student, rng, "2 ** (x / y) - 3 * x.sin() ** 2", lambda x, y: 2 ** (x / y) - 3 * x.sin() ** 2)
    agree(student, rng, "((x.exp() + y) ** 0.5).log()", lambda x, y: ((x.exp() + y) ** 0.5).log())


# --------------------------------------------------------------------------------------- chain_gradient


@chain_gradient.check(points=5)
def two_by_two(student, rng):
    "f(x1(s,t), x2(s,t)): both partial derivatives of the lecture's example."
    st = uniform(0.5, 1.5, (2,), rng)

    def inner(st):
        return torch.stack((st[0] ** 2 * st[1], torch.sin(st[0]) + 3 * st[1]))

    def outer(x):
        return x[0] * torch.exp(x[1] / 4)

    df_dx, dx_ds = autograd(outer, inner(st)), torch.autograd.functional.jacobian(inner, st)
    got = student.chain_gradient(df_dx.clone(), dx_ds.clone())
    not_the_single_terms(got, 2, 2)
    mistakes = {
        "The Jacobian is used by its rows: entry j sums over i, Σ_i df/dx_i · dx_i/ds_j (column j).": dx_ds @ df_dx,
        "You summed the derivatives of x before multiplying: multiply pairwise, then add.": df_dx * dx_ds.sum(0),
        "Only the diagonal is used: f depends on s through every x_i.": df_dx * dx_ds.diagonal(),
    }
    why = "f = x1 e^(x2/4) with x1 = s²t and x2 = sin s + 3t; oracle: autograd of the whole."
    expected = autograd(lambda st: outer(inner(st)), st)
    checks.close(got, expected, name="chain_gradient(df_dx, dx_ds)", why=why, mistakes=mistakes)


@chain_gradient.check(points=5)
def any_sizes(student, rng):
    "n inner functions of m variables, n and m from 1 on."
    for n, m in ((3, 5), (5, 3), (4, 1), (1, 4), (1, 1)):
        df_dx, dx_ds = uniform(-1, 1, (n,), rng), uniform(-1, 1, (n, m), rng)
        got = student.chain_gradient(df_dx.clone(), dx_ds.clone())
        not_the_single_terms(got, n, m)
        checks.close(got, (df_dx.reshape(n, 1) * dx_ds).sum(0), name=f"chain_gradient for n = {n}, m = {m}")


def not_the_single_terms(got, n: int, m: int) -> None:
    checks.that(
        not (type(got) is torch.Tensor and tuple(got.shape) == (n, m)),
        f"For n = {n}, m = {m} the result has shape ({n}, {m}): these are the single terms. Add them up over i.",
        got=got,
        expected=f"shape ({m},)",
    )


# ------------------------------------------------------------------------------------------- grad_check


def saddle(x):
    return (x[0] * x[1] + torch.sin(x)).sum()


def huge(x):
    return 1e6 * (x**3).sum()


def tiny(x):
    return 1e-6 * (x**3).sum()


def lopsided(x):
    return 1000 * x[0] ** 2 + 0.01 * (x[1:] ** 2).sum()


def minimum(x):
    return ((x - 1.1) ** 2).sum()


def unused(x):
    return torch.exp(x[..., 0]).sum()


# Function and a point: gradients of ordinary, huge and tiny size, of unequal entries, at a minimum, in several shapes.
POINTS = (
    (quadratic, (2,)),
    (sphere, (2, 3)),
    (mixed, (3,)),
    (rosenbrock, (4,)),
    (saddle, (3,)),
    (tiny, (4,)),
    (huge, (4,)),
    (product, (2, 2)),
    (lopsided, (3,)),
    (unused, (2, 2)),
)


@grad_check.check(points=3)
def accepts_right_gradients(student, rng):
    "Ten right gradients are accepted, whatever their size, and one that is zero."
    for f, shape in (*POINTS, (minimum, (3,))):
        x = torch.full(shape, 1.1, dtype=torch.float64) if f is minimum else uniform(0.5, 1.5, shape, rng)
        ok = verdict(student, f, lambda x, f=f: autograd(f, x), x, f"the right gradient of {f.__name__}")
        why = {
            huge: "The gradient is of size 1,000,000, and its rounding errors grow with it.",
            unused: "Two entries of the gradient are zero: |a - n| / max(|a|, |n|) is 0/0 there.",
            minimum: "The gradient is zero, the quotient some 1e-16: |a - n| / max(|a|, |n|) is 1 there.",
        }.get(f, "")
        advice = "Allow 1e-4 · max(|a|, |n|) + 1e-9 in each coordinate."
        checks.that(
            ok, f"grad_check rejects the right gradient of {f.__name__}. {advice}", got=ok, expected=True, why=why
        )


def verdict(student, f, grad, x: torch.Tensor, what: str) -> bool:
    """The first part of grad_check's answer, after its form was checked."""
    ok = pair(student, f, grad, x, what)[0]
    kind = show.an(show.type_name(ok))
    checks.that(type(ok) is bool, f"ok is {kind}, expected a bool. Wrap it: bool(...).", got=ok)
    return ok


def pair(student, f, grad, x: torch.Tensor, what: str) -> tuple:
    grad.__name__ = "grad"
    got = student.grad_check(f, grad, x.clone())
    sentence = f"For {what} it returned {show.show(got, 60)}, expected the pair (ok, worst_index)."
    checks.that(type(got) is tuple and len(got) == 2, sentence, got=got)
    return got


# What is subtly wrong with coordinate i of a gradient.
WRONG = {
    "one entry 1 % too large": lambda g: g * 1.01,
    "one sign turned": lambda g: -g,
    "a factor 2 in one entry": lambda g: 2 * g,
    "one entry forgotten (zero)": lambda g: 0 * g,
    "one entry 5 % too small": lambda g: 0.95 * g,
}


def spoiled(f, index: tuple, spoil):
    """The gradient of `f` with one coordinate spoiled."""

    def grad(x):
        g = autograd(f, x)
        g[index] = spoil(g[index])
        return g

    return grad


def wrong_gradients(rng):
    """Ten wrong gradients: (description, f, grad, x, the spoiled coordinate)."""
    for k, (f, shape) in enumerate(POINTS):
        x = uniform(0.5, 1.5, shape, rng)
        description, spoil = list(WRONG.items())[k % len(WRONG)]
        flat = 1 if f is lopsided else 2 if f is unused else int(torch.randint(x.numel(), (), generator=rng))
        index = tuple(int(i) for i in np.unravel_index(flat, shape))
        yield f"{f.__name__} with {description}", f, spoiled(f, index, spoil), x, index


@grad_check.check(points=3)
def rejects_wrong_gradients(student, rng):
    "Ten gradients that are wrong in one coordinate are rejected."
    for description, f, grad, x, index in wrong_gradients(rng):
        ok = verdict(student, f, grad, x, description)
        why = {
            tiny: "The whole gradient is of size 1e-6: an absolute tolerance alone lets everything through.",
            lopsided: "The entry is small beside another one: compare each coordinate with its own size.",
        }.get(f, "")
        checks.that(
            not ok, f"grad_check accepts {description}, at index {index}. {why}".strip(), got=ok, expected=False
        )


@grad_check.check(points=3, needs="rejects_wrong_gradients")
def names_the_coordinate(student, rng):
    "worst_index is the coordinate that is wrong."
    for description, f, grad, x, index in wrong_gradients(rng):
        _, worst = pair(student, f, grad, x, description)
        is_index = type(worst) is tuple and all(type(i) is int for i in worst) and len(worst) == x.dim()
        checks.that(
            is_index,
            f"worst_index is {show.show(worst)}, expected a tuple: one int for each of the {x.dim()} dimensions of x, "
            "so that x[worst_index] is the coordinate. From a flat index: np.unravel_index.",
            got=worst,
            expected=index,
        )
        checks.equal(worst, index, name="worst_index", why=description)


@grad_check.check(points=1)
def nan_is_not_agreement(student, rng):
    "A gradient with a NaN in it is rejected."
    x = uniform(0.5, 1.5, (4,), rng)
    ok = verdict(student, sphere, spoiled(sphere, (2,), lambda g: g * math.nan), x, "a gradient with a NaN")
    sentence = "grad_check accepts a gradient with a NaN. NaN > tolerance is False: ask for error <= allowed instead."
    checks.that(not ok, sentence, got=ok, expected=False)
