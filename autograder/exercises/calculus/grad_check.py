"""A check of gradients that accepts the right ones and names a wrong coordinate. Oracle: autograd."""

import math

import numpy as np
import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.calculus.drawing import uniform
from autograder.exercises.calculus.functions import autograd, drawn, mixed, product, quadratic, rosenbrock, sphere
from autograder.exercises.ready_made import BY_HAND, DERIVATIVES

exercise = Exercise("grad_check", points=10, minutes=8, uses=("gradient",), forbid=DERIVATIVES, instead=BY_HAND)


def saddle(x, a, b, c):
    return (a * x[0] * x[1] + b * torch.sin(c * x)).sum()


def huge(x, a, b, _):
    return 1e6 * (a * x**3 + b * x**2).sum()


def tiny(x, a, b, _):
    return 1e-6 * (a * x**3 + b * x**2).sum()


def lopsided(x, a, b, _):
    return 1000 * a * x[0] ** 2 + 0.01 * b * (x[1:] ** 2).sum()


def minimum(x, a, *_):
    return a * ((x - 1.1) ** 2).sum()


def unused(x, a, b, _):
    return a * torch.exp(b * x[..., 0]).sum()


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


@exercise.check(points=3)
def accepts_right_gradients(student, rng):
    "Ten right gradients of any size are accepted, and one that is zero; each is rejected where it is 1 % too large."
    for family, shape in (*POINTS, (minimum, (3,))):
        f = drawn(family, rng)
        x = torch.full(shape, 1.1, dtype=torch.float64) if family is minimum else uniform(0.5, 1.5, shape, rng)
        ok = verdict(student, f, lambda x, f=f: autograd(f, x), x, f"the right gradient of {f.__name__}")
        why = {
            huge: "The gradient is of size 1,000,000, and its rounding errors grow with it.",
            unused: "Two entries of the gradient are zero: |a - n| / max(|a|, |n|) is 0/0 there.",
            minimum: "The gradient is zero, the quotient some 1e-16: |a - n| / max(|a|, |n|) is 1 there.",
        }.get(family, "")
        advice = "Allow 1e-4 · max(|a|, |n|) + 1e-9 in each coordinate."
        checks.that(
            ok, f"grad_check rejects the right gradient of {f.__name__}. {advice}", got=ok, expected=True, why=why
        )
        if family is not minimum:
            ok = verdict(
                student, f, lambda x, f=f: 1.01 * autograd(f, x), x, f"1.01 times the gradient of {f.__name__}"
            )
            sentence = f"grad_check accepts 1.01 times the gradient of {f.__name__}: measure it, and compare. {advice}"
            checks.that(not ok, sentence, got=ok, expected=False)
    near_the_limit(student, drawn(unused, rng), INSIDE, add_little, True, rng)


INSIDE = "0.7e-9 where it should be 0"


def add_little(g):
    return g + 0.7e-9


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
    checks.that(type(got) in (tuple, list) and len(got) == 2, sentence, got=got)
    return got


# What is subtly wrong with coordinate i of a gradient.
WRONG = {
    "one entry 1 % too large": lambda g: g * 1.01,
    "one sign turned": lambda g: -g,
    "a factor 2 in one entry": lambda g: 2 * g,
    "one entry forgotten (zero)": lambda g: 0 * g,
    "one entry 5 % too small": lambda g: 0.95 * g,
}
NEAR = {  # just outside of what is allowed, and just inside
    "one entry 0.015 % too large": (lambda g: 1.00015 * g, False),
    "one entry 0.005 % too large": (lambda g: 1.00005 * g, True),
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
    for k, (family, shape) in enumerate(POINTS):
        f, x = drawn(family, rng), uniform(0.5, 1.5, shape, rng)
        description, spoil = list(WRONG.items())[k % len(WRONG)]
        flat = 1 if family is lopsided else 2 if family is unused else int(torch.randint(x.numel(), (), generator=rng))
        index = tuple(int(i) for i in np.unravel_index(flat, shape))
        yield f"{f.__name__} with {description}", f, spoiled(f, index, spoil), x, index


@exercise.check(points=3)
def rejects_wrong_gradients(student, rng):
    "Ten gradients that are wrong in one coordinate are rejected."
    for description, f, grad, x, index in wrong_gradients(rng):
        ok = verdict(student, f, grad, x, description)
        why = {
            "tiny": "The whole gradient is of size 1e-6: an absolute tolerance alone accepts everything.",
            "lopsided": "The entry is small compared with another one: compare each coordinate with its own size.",
        }.get(f.__name__, "")
        checks.that(
            not ok, f"grad_check accepts {description}, at index {index}. {why}".strip(), got=ok, expected=False
        )
    ball = drawn(sphere, rng)
    for description, (spoil, right) in NEAR.items():
        near_the_limit(student, ball, description, spoil, right, rng)
    near_the_limit(student, drawn(unused, rng), "1.5e-9 where it should be 0", lambda g: g + 1.5e-9, False, rng)


def near_the_limit(student, f, description: str, spoil, right: bool, rng) -> None:
    """Check the verdict on the gradient of `f` with one coordinate that is nearly outside, or just outside."""
    ok = verdict(student, f, spoiled(f, (1,), spoil), uniform(0.5, 1.5, (3,), rng), description)
    sentence = "Allowed is |a − m| ≤ 1e-4 · max(|a|, |m|) + 1e-9 in each coordinate."
    checks.that(
        ok is right,
        f"grad_check {'accepts' if ok else 'rejects'} a gradient with {description}. {sentence}",
        got=ok,
        expected=right,
    )


@exercise.check(points=3, needs="rejects_wrong_gradients")
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
    turned, lost, far = torch.randperm(4, generator=rng)[:3].tolist()
    ball, x = drawn(sphere, rng), uniform(0.5, 1.5, (4,), rng)
    x[lost] *= -1

    def wrong(x):
        factors = torch.ones_like(x)
        factors[turned], factors[lost], factors[far] = -1.0, 0.0, -3.0
        return factors * autograd(ball, x)

    _, worst = pair(student, ball, wrong, x, "three wrong coordinates")
    why = "a = −m in this one, 0 and −3 m in two others: |a − m| in proportion to max(|a|, |m|) is 2, 1 and 4/3."
    checks.equal(worst, (turned,), name="worst_index", why=why)
    worst_by_its_limit(student, rng)


def worst_by_its_limit(student, rng) -> None:
    """Check that a tiny entry, whose limit is mostly 1e-9, is not the worst one for its percentage."""
    first = drawn(unused, rng)
    if not verdict(student, first, spoiled(first, (1,), add_little), uniform(0.5, 1.5, (3,), rng), INSIDE):
        return  # this answer's limit lacks the 1e-9: another check says so
    place = int(torch.randint(3, (), generator=rng))
    weights = torch.full((3,), 1e-6, dtype=torch.float64)
    weights[place] = 1.0

    def f(x):
        return (weights * x**2).sum()

    def wrong(x):
        return autograd(f, x) * torch.where(weights == 1, 1.009, 1.01)

    _, worst = pair(student, f, wrong, uniform(0.5, 1.5, (3,), rng), "entries of size 1 and 1e-6")
    why = "It is 0.9 % too large, and the others, of size 1e-6, 1 %: the limit of those is mostly the 1e-9."
    checks.equal(worst, (place,), name="worst_index", why=why)


@exercise.check(points=1, needs="rejects_wrong_gradients")
def nan_is_not_agreement(student, rng):
    "A gradient with a NaN in it is rejected."
    ball, x = drawn(sphere, rng), uniform(0.5, 1.5, (4,), rng)
    ok = verdict(student, ball, spoiled(ball, (2,), lambda g: g * math.nan), x, "a gradient with a NaN")
    sentence = "grad_check accepts a gradient with a NaN. NaN > tolerance is False: ask for error <= allowed instead."
    checks.that(not ok, sentence, got=ok, expected=False)
