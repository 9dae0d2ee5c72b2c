"""The logistic function and its slope, without overflow. Oracle: `torch.sigmoid` and autograd."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.calculus.drawing import uniform
from autograder.exercises.calculus.functions import autograd
from autograder.exercises.ready_made import LOGISTIC

exercise = Exercise(
    "logistic",
    points=10,
    minutes=7,
    functions=("logistic", "logistic_grad"),
    forbid=LOGISTIC,
    instead="Write the function with exp: handling an e^-x that is too large is part of the exercise.",
)


@exercise.check(points=3)
def logistic_values(student, rng):
    "logistic(x) = 1 / (1 + e^-x) for a tensor, x untouched."
    x = uniform(-1, 1, (3, 4), rng) * torch.tensor([5.0, 1.0, 0.1, 0.0], dtype=torch.float64)
    given = x.clone()
    got = student.logistic(given)
    mistakes = {
        "This is 1 / (1 + e^x): the exponent is -x.": torch.sigmoid(-x),
        "This is tanh: it runs from -1 to 1, the logistic function from 0 to 1.": torch.tanh(x),
        "This is the derivative f(1-f); the function itself is asked for.": torch.sigmoid(x) * torch.sigmoid(-x),
    }
    checks.close(got, torch.sigmoid(x), name="logistic(x)", mistakes=mistakes)
    checks.unchanged(given, x, name="x")


@exercise.check(points=4)
def no_overflow(student, rng):
    "No overflow at ±1000, in float64 and in float32."
    for dtype in (torch.float64, torch.float32):
        some = uniform(-60, 60, (3,), rng).to(dtype)
        x = torch.cat([torch.tensor([-1000.0, -90.0, 0.0, 90.0, 1000.0], dtype=dtype), some])
        got = student.logistic(x.clone())
        if type(got) is torch.Tensor and got.isnan().any():
            at = (
                show.number(x[got.isnan().reshape(-1)[:8].nonzero()[0, 0]].item())
                if got.shape == x.shape
                else "large x"
            )
            checks.fail(
                f"logistic({at}) is nan in {show.dtype(dtype)}: e^1000 is inf, and inf / inf is not a number. Take "
                "the exponential only of numbers that are not positive, or divide 1 by it.",
                got=got,
                expected=torch.sigmoid(x),
            )
        checks.close(got, torch.sigmoid(x), name="logistic(x)", why=f"x = {show.show(x)}")


@exercise.check(points=3)
def slope_from_the_output(student, rng):
    "logistic_grad(y) takes the output y = f(x) and gives f'(x)."
    for shape, dtype in (((5,), torch.float64), ((2, 3), torch.float32)):
        slope_at(student, uniform(-4, 4, shape, rng).to(dtype))


def slope_at(student, x: torch.Tensor) -> None:
    y = torch.sigmoid(x)
    given = y.clone()
    got = student.logistic_grad(given)
    twice = torch.sigmoid(y)
    mistakes = {
        "You applied the logistic function once more: y already is f(x). The slope is y (1 - y).": twice * (1 - twice),
        "This is y (1 + y): the rule is f' = f (1 - f).": y * (1 + y),
        "The sign is wrong: the logistic function grows everywhere.": -y * (1 - y),
        "This is 1 - y² (the rule of tanh): the logistic function's is y (1 - y).": 1 - y**2,
    }
    checks.close(got, autograd(torch.sigmoid, x), name="logistic_grad(y)", mistakes=mistakes)
    checks.unchanged(given, y, name="y")
