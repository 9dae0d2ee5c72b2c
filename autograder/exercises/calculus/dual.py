"""Dual numbers: a value with its slope. Oracle: autograd along the direction of the slopes."""

import math
from collections.abc import Callable

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.calculus.drawing import number
from autograder.exercises.calculus.functions import autograd
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import BY_HAND, DERIVATIVES
from autograder.sessions.errors import StudentError
from autograder.sessions.handle import Handle, computed

exercise = Exercise("Dual", points=25, minutes=20, forbid=DERIVATIVES, instead=BY_HAND)


def agree(student, rng, text: str, f, mistakes=None, exchanged=None, signed: bool = True) -> None:
    """`f(x, y)` of two of the student's Duals has the value and the slope that torch finds: for x, y > 0, then < 0.

    `mistakes` maps a sentence to a function of (x, y, dx, dy) that gives the slope which the mistake would give;
    `exchanged` is `f` with its operands the wrong way round. `signed` is False where x, y < 0 have no value.
    """
    for sign in (1, -1)[: 1 + signed]:
        x, y = (sign * number(0.5, 2.5, rng) for _ in range(2))
        agree_at(student, (x, y), (number(0.3, 2, rng), -number(0.3, 2, rng)), text, f, mistakes, exchanged)


def agree_at(student, at, slopes, text: str, f, mistakes, exchanged) -> None:
    """As `agree`, where x and y are `at` and come with `slopes`."""
    (x, y), (dx, dy) = at, slopes
    point, direction = (torch.tensor(pair, dtype=torch.float64) for pair in ((x, y), (dx, dy)))
    value, slope = f(*point), autograd(lambda p: f(p[0], p[1]), point) @ direction
    b = student.Dual(y, dy) if "y" in text else None
    a = student.Dual(x, dx)
    there = f"{text} with x = Dual({x}, {dx})" + (f" and y = Dual({y}, {dy})" if "y" in text else "")
    result = evaluated(lambda: f(a, b), text, there)
    named = {sentence: wrong(*point, *direction).item() for sentence, wrong in (mistakes or {}).items()}
    turned = (
        "The operands are exchanged: in a reflected method such as __rsub__(self, other), other is the left operand."
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
        result = computed(formula)
    except StudentError as error:
        if "unsupported operand" not in error.text and "has no attribute" not in error.text:
            raise
        advice = ""
        if text[0].isdigit():
            advice = " With a number on the left Python calls a reflected method of x: __radd__, __rsub__, ..."
        elif "'int'" in error.text or "'float'" in error.text:
            advice = " A plain number is a constant: make it a Dual of slope 0 first."
        checks.fail(f"Your Dual cannot compute {text}: {error.text}.{advice}", got=error.text, expected="a Dual")
    except Exception as error:
        checks.fail(f"{there}: one of the operators or methods returns no Dual ({error}).")
    if type(result) is not Handle:
        kind = show.an(show.type_name(result))
        checks.fail(f"{there} gave {kind}, expected a Dual: return Dual(value, slope).", got=result)
    return result


@exercise.check(points=4)
def sums(student, rng):
    "Sums, differences and -x, with constants on either side."
    agree(student, rng, "x + y", lambda x, y: x + y)
    agree(student, rng, "x - y", lambda x, y: x - y, {"The slope of a difference is x' - y'.": plus})
    agree(student, rng, "-x", lambda x, y: -x, {"The slope of -x is -x': change its sign, too.": lambda x, y, u, v: u})
    constant = {"A constant has slope 0: it adds nothing to the slope.": lambda x, y, u, v: u + 1}
    c = whole_number(rng, 2, 9)
    agree(student, rng, f"x + {c}", lambda x, y: x + c, constant)
    agree(student, rng, f"{c} + x", lambda x, y: c + x, constant)
    agree(student, rng, f"x - {c}", lambda x, y: x - c, constant)
    turned = {f"{c} - x falls when x grows: its slope is -x'.": lambda x, y, u, v: u}
    agree(student, rng, f"{c} - x", lambda x, y: c - x, turned, exchanged=lambda x, y: x - c)


def plus(x, y, u, v):
    return u + v


@exercise.check(points=4)
def products(student, rng):
    "Products by the product rule, with constants on either side."
    mistakes = {
        "You multiplied the slopes: the product rule is (fg)' = f'g + fg'.": lambda x, y, u, v: u * v,
        "The sign in the middle is wrong: the product rule is (fg)' = f'g + fg'.": lambda x, y, u, v: u * y - x * v,
        "Each slope goes with the other factor's value: (fg)' = f'g + fg'.": lambda x, y, u, v: u * x + y * v,
    }
    agree(student, rng, "x * y", lambda x, y: x * y, mistakes)
    constant = {"The constant's slope is 0, but its value still multiplies x'.": lambda x, y, u, v: u}
    c, half = whole_number(rng, 2, 9), whole_number(rng, 1, 9) + 0.5
    agree(student, rng, f"x * {c}", lambda x, y: x * c, constant)
    agree(student, rng, f"{half} * x", lambda x, y: half * x, constant)
    agree(student, rng, "x * x", lambda x, y: x * x)


@exercise.check(points=5)
def quotients(student, rng):
    "Quotients by the quotient rule, with constants on either side."
    mistakes = {
        "The sign in the middle is wrong: the quotient rule is (f/g)' = (f'g - fg') / g².": lambda x, y, u, v: (
            (u * y + x * v) / y**2
        ),
        "The order is wrong: the quotient rule is (f/g)' = (f'g - fg') / g², with f'g first.": lambda x, y, u, v: (
            (x * v - u * y) / y**2
        ),
        "The square in the denominator is missing: (f/g)' = (f'g - fg') / g².": lambda x, y, u, v: (u * y - x * v) / y,
        "You divided the slopes: the quotient rule is (f/g)' = (f'g - fg') / g².": lambda x, y, u, v: u / v,
    }
    agree(student, rng, "x / y", lambda x, y: x / y, mistakes)
    c = whole_number(rng, 2, 9)
    agree(student, rng, f"x / {c}", lambda x, y: x / c)
    reciprocal = {f"{c} / x falls when x grows: its slope is -{c} x' / x².": lambda x, y, u, v: c * u / x**2}
    agree(student, rng, f"{c} / x", lambda x, y: c / x, reciprocal, exchanged=lambda x, y: x / c)


@exercise.check(points=4)
def powers(student, rng):
    "Powers: x ** n for any number n, and c ** x."
    for n in (3, 0.5, -2, 4, number(1.2, 3.8, rng)):
        mistakes: dict[str, Callable] = {
            "The chain rule: multiply by x', the slope that x brings along.": lambda x, y, u, v, n=n: n * x ** (n - 1),
            "The exponent goes down by one: n x^(n-1) x'.": lambda x, y, u, v, n=n: n * x**n * u,
            "The factor n is missing: n x^(n-1) x'.": lambda x, y, u, v, n=n: x ** (n - 1) * u,
        }
        agree(student, rng, f"x ** {n}", lambda x, y, n=n: x**n, mistakes, signed=type(n) is int)
    mistakes = {
        "The factor ln 2 is missing: (c^x)' = c^x ln(c) x'.": lambda x, y, u, v: 2**x * u,
        "The chain rule: (c^x)' = c^x ln(c) x'.": lambda x, y, u, v: 2**x * math.log(2),
        "Here x is the exponent, not the base: (c^x)' = c^x ln(c) x'.": lambda x, y, u, v: x * 2 ** (x - 1) * u,
    }
    agree(student, rng, "2 ** x", lambda x, y: 2**x, mistakes, exchanged=lambda x, y: x**2)
    c = number(2.2, 4.8, rng)
    two = {"The factor is ln(c), not ln(2): (c^x)' = c^x ln(c) x'.": lambda x, y, u, v: c**x * math.log(2) * u}
    agree(student, rng, f"{c} ** x", lambda x, y: c**x, two)
    zero = evaluated(lambda: student.Dual(0.0, 1.0) ** 2, "x ** 2", "x ** 2 with x = Dual(0.0, 1.0)")
    checks.close(zero.slope, 0.0, name="the slope of x ** 2 with x = Dual(0.0, 1.0)", atol=1e-12)


@exercise.check(points=4)
def elementary_functions(student, rng):
    "x.exp(), x.log() and x.sin(), with the chain rule."
    chain = "The chain rule: multiply by x', the slope that x brings along."
    agree(student, rng, "x.exp()", lambda x, y: x.exp(), {chain: lambda x, y, u, v: x.exp()})
    mistakes = {chain: lambda x, y, u, v: 1 / x, "The derivative of ln x is 1/x.": lambda x, y, u, v: x.log() * u}
    agree(student, rng, "x.log()", lambda x, y: x.log(), mistakes, signed=False)
    mistakes = {
        chain: lambda x, y, u, v: x.cos(),
        "The derivative of sin is cos, with a plus.": lambda x, y, u, v: -x.cos() * u,
        "This is sin(x) x': the derivative of sin is cos.": lambda x, y, u, v: x.sin() * u,
    }
    agree(student, rng, "x.sin()", lambda x, y: x.sin(), mistakes)


@exercise.check(points=4, needs=("sums", "products", "quotients", "powers", "elementary_functions"))
def compositions(student, rng):
    "Whole formulas, to twelve digits."
    agree(student, rng, "1 / (1 + (-x).exp())", lambda x, y: 1 / (1 + (-x).exp()))
    agree(student, rng, "(x * y).sin() / (x ** 2 + 1)", lambda x, y: (x * y).sin() / (x**2 + 1))
    agree(student, rng, "(x * x.log()).exp()", lambda x, y: (x * x.log()).exp(), signed=False)
    agree(student, rng, "2 ** (x / y) - 3 * x.sin() ** 2", lambda x, y: 2 ** (x / y) - 3 * x.sin() ** 2)
    agree(student, rng, "(9 * x).sin() - y", lambda x, y: (9 * x).sin() - y)
    agree(student, rng, "((x.exp() + y) ** 0.5).log()", lambda x, y: ((x.exp() + y) ** 0.5).log(), signed=False)
