"""A step of gradient descent with weights in a number format. Oracle: the step in float64, rounded by the oracle."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks import number_formats as formats
from autograder.checks.number_formats import beside, exact
from autograder.exercises.drawing import F32
from autograder.exercises.stochastic_rounding.generators import (
    ASKED,
    RARE,
    fresh,
    independent,
    repeats,
    seldom,
    vary_as_chance,
)
from autograder.exercises.stochastic_rounding.inputs import are_neighbours
from hpcdl.numerics.rounding import BF16, Fixed

exercise = Exercise("sgd_low_precision", points=10, minutes=10, uses=("round_nearest_even", "stochastic_round"))


def weights(rng, fmt, n: int):
    """Weights in the format, well inside it, and gradients that are multiples of ε/4."""
    eps = 2.0**-fmt.fl
    w = torch.randint(-40, 41, (n,), generator=rng) * eps
    return w, torch.randint(-30, 31, (n,), generator=rng) * eps / 4


def other_weights(rng, n: int):
    """Formats, weights in them and gradients: floating-point ones, whose spacing differs; and the ends of a fixed-point
    format, with steps that lead outside."""
    numbers, powers = (torch.randint(*ends, (n,), generator=rng) for ends in ((128, 256), (5, 8)))
    signs = 2 * torch.randint(0, 2, (n,), generator=rng) - 1
    yield BF16, signs * numbers / 2.0**powers, torch.randint(-30, 31, (n,), generator=rng) / 512
    fmt = Fixed(3, 4)
    ends, beyond = torch.tensor([fmt.max, fmt.min]), torch.tensor([-1.0, 1.0])
    yield fmt, ends.repeat(n // 2), (beyond * torch.randint(1, 60, (n // 2, 1), generator=rng) / 32).flatten()


def ask_step(student, w, grad, lr, fmt, mode, generator=None):
    generator = generator or torch.Generator().manual_seed(0)
    got = student.sgd_low_precision(w.clone(), grad.clone(), lr, fmt, mode, generator)
    checks.tensor(got, name="sgd_low_precision(...)", shape=w.shape, dtype=F32)
    if mode == "stochastic":
        are_neighbours(got, w.double() - lr * grad.double(), fmt, "A new weight is", "w − lr · grad")
    return got


@exercise.check(points=3)
def a_step_to_nearest(student, rng):
    "With mode “nearest”: w − lr · grad, rounded to the nearest number of the format."
    rates = (torch.randperm(4, generator=rng) + 1) / 8
    for fmt, lr, shape in zip(
        (Fixed(4, 4), Fixed(8, 8), Fixed(5, 7)), rates.tolist(), ((60,), (6, 10), ()), strict=False
    ):
        w, grad = (drawn[: math.prod(shape)].reshape(shape) for drawn in weights(rng, fmt, 60))
        new = w.double() - lr * grad.double()
        mistakes = {
            "It climbs: the step goes against the gradient, w - lr * grad.": formats.nearest(w + lr * grad, fmt),
            "The learning rate is missing.": formats.nearest(w - grad, fmt),
            "The new weights are not rounded: they would not fit into 16 bits.": new,
            "This rounds the gradient, and not the new weight.": w - lr * formats.nearest(grad, fmt),
            "This rounds lr · grad, and not the new weight.": w - formats.nearest(lr * grad, fmt),
            "This cuts off: round to the nearest number.": torch.where(
                new < 0, beside(new, fmt)[1], beside(new, fmt)[0]
            ),
            "This always rounds down.": beside(new, fmt)[0],
        }
        name = f'sgd_low_precision(w, grad, {lr}, {fmt}, "nearest", generator)'
        got = ask_step(student, w, grad, lr, fmt, "nearest")
        exact(got, formats.nearest(new, fmt), new, name=name, why="x is w − lr · grad here.", mistakes=mistakes)
    for fmt, w, grad in other_weights(rng, 60):
        new, (low, *_, high) = w.double() - 0.5 * grad.double(), formats.values(fmt)
        name = f'sgd_low_precision(w, grad, 0.5, {fmt}, "nearest", generator)'
        got = ask_step(student, w, grad, 0.5, fmt, "nearest")
        exact(got, formats.nearest(new.clamp(low, high), fmt), new, name=name, why="x is w − lr · grad here.")


@exercise.check(points=1, needs="a_step_to_nearest")
def weights_stay_in_the_format(student, rng):
    "With mode “stochastic” each new weight is one of the two neighbours of w − lr · grad."
    for fmt in (Fixed(4, 4), Fixed(2, 14)):
        w, grad = weights(rng, fmt, 200)
        ask_step(student, w, grad, 0.5, fmt, "stochastic")
    for fmt, w, grad in other_weights(rng, 200):
        ask_step(student, w, grad, 0.5, fmt, "stochastic")


@exercise.check(points=1, needs="weights_stay_in_the_format")
def each_weight_its_own(student, rng):
    "Each weight has a random number of its own."
    fmt, n, times = Fixed(2, 14), 400, 24
    w, grad = torch.zeros(n), torch.full((n,), -(2.0**-fmt.fl))

    def steps():
        moves = [ask_step(student, w, grad, 0.5, fmt, "stochastic", fresh(rng)) != 0 for _ in range(times)]
        moved = [int(move.sum()) for move in moves]
        checks.that(
            0 < moved[0] < n,
            f"Of {n} weights that all should move with odds 1/2, {moved[0]} did: they share one random number, or you "
            "use none. Draw one for each weight from the generator.",
        )
        half = torch.full((times, 1), 0.5, dtype=torch.float64)
        what = f"The numbers of {n} weights that move with odds 1/2, in {times} steps,"
        vary_as_chance(torch.tensor(moved, dtype=torch.float64), n, half[:, 0], (2.0, 92.0), what)
        independent(
            torch.stack(moves).double(), half, f"Of {n} weights those that move in one of {times} steps and in another"
        )

    checks.retested(steps)


@exercise.check(points=3, needs="each_weight_its_own")
def small_updates_count(student, rng):
    "An update far below half a spacing moves the weight in expectation: it seldom moves, but by a whole spacing."
    fmt, n = Fixed(2, 14), 50_000
    eps = 2.0**-fmt.fl
    drawn = (torch.rand(2, generator=rng) * 0.02).tolist()  # no odds that random numbers of few bits can give
    for share in (0.035 + drawn[0], -0.035 - drawn[1], 0.004, 1 / 4):
        grad, sign = torch.full((n,), share * eps), round(math.copysign(1, share))

        def one_step(grad=grad, share=share, sign=sign):
            moves = ask_step(student, torch.zeros(n), grad, 1.0, fmt, "stochastic", fresh(rng)) / eps
            why = (
                f"lr · grad is {share:g} ε. Rounded to nearest none would move; at random each moves by ε with odds "
                f"{abs(share):g}."
            )
            checks.mean(moves, -share, low=min(0, -sign), high=max(0, -sign), what="a weight's move, in ε,", why=why)

        checks.retested(one_step)
    grad = torch.full((ASKED,), -RARE * eps)
    moves = ask_step(student, torch.zeros(ASKED), grad, 1.0, fmt, "stochastic", fresh(rng))
    seldom(int(moves.count_nonzero()), f"lr · grad is {RARE:g} ε for each weight. There move")


@exercise.check(points=1, needs="weights_stay_in_the_format")
def no_global_generator(student, rng):
    "All randomness comes from the generator: the same state gives the same step."
    w, grad = weights(rng, Fixed(2, 14), 200)
    repeats(lambda g: ask_step(student, w, grad, 0.3, Fixed(2, 14), "stochastic", g), "sgd_low_precision")


@exercise.check(points=1, needs="a_step_to_nearest")
def leaves_its_inputs_alone(student, rng):
    "w and grad are the same after the step; the new weights are returned."
    fmt, (w, grad) = Fixed(4, 4), weights(rng, Fixed(4, 4), 9)
    before = w.clone(), grad.clone()
    got = student.sgd_low_precision(w, grad, 0.5, fmt, "nearest", torch.Generator().manual_seed(0))
    checks.unchanged(w, before[0], name="w")
    checks.unchanged(grad, before[1], name="grad")
    new = w.double() - 0.5 * grad.double()
    name = f'sgd_low_precision(w, grad, 0.5, {fmt}, "nearest", generator)'
    exact(got, formats.nearest(new, fmt), new, name=name, why="x is w − lr · grad here.")
