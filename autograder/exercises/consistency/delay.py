"""Gradients that come late, and the learning rate at which that explodes. Oracles: a loop, roots of the recurrence."""

from functools import cache

import numpy as np
import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number

exercise = Exercise("delay", points=15, minutes=15, functions=("delayed_sgd", "largest_stable_lr"))

FIRST = "the first `delay` steps have nothing older than w_0"


def path(w: torch.Tensor, matrix: torch.Tensor, lr: float, delay: int, steps: int) -> list[torch.Tensor]:
    """w_0 to w_steps; the gradient at w is matrix @ w."""
    found = [w] * (delay + 1)
    for _ in range(steps):
        found.append(found[-1] - lr * matrix @ found[-1 - delay])
    return found[delay:]


def skips(w, matrix, lr: float, delay: int, steps: int) -> list[torch.Tensor]:
    """Return the weights if no step is taken in the first `delay` steps."""
    found = [w] * (delay + 1)
    for _ in range(max(0, steps - delay)):
        found.append(found[-1] - lr * matrix @ found[-1 - delay])
    return found[: steps + 1]


def are_weights(got, name: str, steps: int, w: torch.Tensor) -> None:
    """Check that `got` is a list of steps + 1 tensors like w."""
    checks.that(type(got) in (list, tuple), f"{name} is {show.an(show.type_name(got))}, expected a list: w_0, w_1, ...")
    checks.length(got, steps + 1, name=name, noun="weight", start=1, why=f"These are w_0 to w_{steps}.")
    for t, mine in enumerate(got):
        checks.tensor(mine, name=f"{name}[{t}]", shape=w.shape, dtype=w.dtype)


def is_path(student, rng, delay: int, steps: int) -> None:
    w, lr = torch.randn(3, generator=rng).double(), whole_number(rng, 3, 12) / 64
    half = torch.randn(3, 3, generator=rng).double()
    matrix = half @ half.T / 3
    asked: list[torch.Tensor] = []

    def grad(x):
        asked.append(x.clone())
        return matrix @ x

    before = w.clone()
    name = f"delayed_sgd(w, grad, {lr}, delay={delay}, steps={steps})"
    got = student.delayed_sgd(w, grad, lr, delay, steps)
    checks.unchanged(w, before, name="w")
    are_weights(got, name, steps, w)
    right = path(w, matrix, lr, delay, steps)
    wrong = {
        "The gradient is not late: take it at w_{t - delay}.": path(w, matrix, lr, 0, steps),
        "The gradient comes one step too late.": path(w, matrix, lr, delay + 1, steps),
        "The gradient comes one step too early.": path(w, matrix, lr, max(0, delay - 1), steps),
        f"Every step moves w: {FIRST}; take the gradient there.": skips(w, matrix, lr, delay, steps),
        "Your step starts at the old weights. Only the gradient is old: start at the last weights.": stale_start(
            w, matrix, lr, delay, steps
        ),
        "That goes uphill: w - lr * gradient.": path(w, matrix, -lr, delay, steps),
        "All entries are the last weights: make a new tensor in each step.": [right[-1]] * (steps + 1),
    }
    wrong["Your steps have another rate: w - lr * gradient."] = path(w, matrix, rate_of(got, matrix), delay, steps)
    expected = torch.stack(right)
    mistakes = {s: torch.stack(v) for s, v in wrong.items() if not torch.allclose(torch.stack(v), expected)}
    why = f"w_{{t+1}} = w_t - lr grad(w_{{t-{delay}}}); {FIRST}." if delay else "Without delay it is SGD."
    checks.close(torch.stack(got), expected, name=f"torch.stack({name})", mistakes=mistakes, why=why)


def rate_of(ws, matrix: torch.Tensor) -> float:
    """Return the learning rate of the first step; 0 without steps."""
    slope = matrix @ ws[0]
    return float((ws[0] - ws[1]) @ slope / (slope @ slope)) if len(ws) > 1 else 0.0


def stale_start(w, matrix, lr: float, delay: int, steps: int) -> list[torch.Tensor]:
    found = [w] * (delay + 1)
    for _ in range(steps):
        found.append(found[-1 - delay] - lr * matrix @ found[-1 - delay])
    return found[delay:]


@exercise.check(points=2)
def without_delay(student, rng):
    "delayed_sgd: with delay 0 it is SGD, and it does not change w."
    is_path(student, rng, 0, 4)
    is_path(student, rng, 0, 0)


@exercise.check(points=6, needs="without_delay")
def late_by_some_steps(student, rng):
    "delayed_sgd: step t takes the gradient of t - delay, and of w_0 as long as there is nothing older."
    for delay, steps in ((3, 8), (1, 6), (5, 3), (2, 2)):
        is_path(student, rng, delay, steps)


def largest_root(gain: float, delay: int) -> float:
    """The largest |z| with z^(delay + 1) - z^delay + gain = 0: what a step multiplies an error by, in the long run."""
    coefficients = [1.0, -1.0, *[0.0] * delay]
    coefficients[-1] += gain
    return float(abs(np.roots(coefficients)).max())


@cache
def bound(delay: int) -> float:
    """The smallest gain at which the largest root leaves the unit circle, by halving."""
    low, high = 1e-6, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if largest_root(middle, delay) < 1 else (low, middle)
    return low


@exercise.check(points=4)
def the_bound(student, rng):
    "largest_stable_lr: the roots of the recurrence reach the unit circle there; 2, 1, 0.618, 0.445 for delays 0 to 3."
    for delay in (0, 1, 2, 3, 7, 20, whole_number(rng, 8, 19), whole_number(rng, 25, 60)):
        for curvature in (1.0, float(2 + torch.randint(9, (), generator=rng))):
            got, call = student.largest_stable_lr(curvature, delay), f"largest_stable_lr({curvature:g}, {delay})"
            checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number.")
            expected = bound(delay) / curvature
            sine = 2 * np.sin(np.pi / (4 * delay + 2))
            mistakes = {
                "2 / curvature is the bound without delay.": 2 / curvature,
                "The curvature divides: a steeper valley takes smaller steps.": sine * curvature,
                "The factor 2 before the sine is missing.": sine / 2 / curvature,
                "The sine takes radians: math.pi, not 180.": 2 * float(np.sin(180 / (4 * delay + 2))) / curvature,
                "pi / (4 delay + 2), which is a right angle at delay 0.": 2
                * float(np.sin(np.pi / (2 * delay + 2)))
                / curvature,
                "The sine itself is needed, not its argument.": np.pi / (2 * delay + 1) / curvature,
            }
            mistakes = {s: float(v) for s, v in mistakes.items() if abs(v - expected) > 1e-4 * expected}
            why = f"With delay {delay} the largest root of z^{delay + 1} - z^{delay} + lr curvature is 1 there."
            checks.close(got, expected, name=call, mistakes=mistakes, rtol=1e-6, atol=0.0, why=why)


STEPS = 600  # few enough for an answer by recursion, and 5 % off the bound shows


@exercise.check(points=3, needs=("late_by_some_steps", "the_bound"), seconds=20.0)
def explodes_above(student, rng):
    "A run with your bound's learning rate shrinks 5 % below it, and grows 5 % above."
    for delay in (1, 4):
        curvature = float(1 + torch.rand((), generator=rng))
        largest = student.largest_stable_lr(curvature, delay)
        checks.close(largest, bound(delay) / curvature, name=f"largest_stable_lr({curvature:g}, {delay})")
        for factor, grows in ((0.95, False), (1.05, True)):
            w, lr = torch.ones(1).double(), factor * float(largest)
            ws = student.delayed_sgd(w, lambda x, c=curvature: c * x, lr, delay, STEPS)
            call = f"delayed_sgd(w, grad, {lr:g}, delay={delay}, steps={STEPS})"
            are_weights(ws, call, STEPS, w)
            right = torch.stack(path(w, torch.tensor([[curvature]]).double(), lr, delay, STEPS))
            atol = 1e-9 * float(right.abs().max())
            checks.close(torch.stack(list(ws)), right, name=f"torch.stack({call})", rtol=1e-6, atol=atol)
            late, early = (max(abs(float(x)) for x in part) for part in (ws[-20:], ws[20:40]))
            wanted = "grow" if grows else "shrink"
            checks.that(
                (late > early) == grows,
                f"delay = {delay}: with {factor:g} of the largest stable learning rate the weights go from {early:.2g} "
                f"in steps 20 to 40 to {late:.2g} in the last 20 of {STEPS}; they should {wanted}.",
            )
