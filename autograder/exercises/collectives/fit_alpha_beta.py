"""Alpha and beta from measured times. Oracle: the two numbers that the times are made from."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.collectives.predictions import machine
from autograder.exercises.drawing import whole_number

exercise = Exercise("fit_alpha_beta", points=10, minutes=10)

SIZES = tuple(4.0 * 8**k for k in range(9))  # 4 B to 64 MiB
REPEATS = 9

Times = tuple[torch.Tensor, torch.Tensor]  # bytes, seconds


def measurements(alpha: float, beta: float, rng, noise: float = 0.0, slow: float = 0.0, order: str = "random") -> Times:
    """`(nbytes, seconds)`: each size nine times, up to `noise` too slow, a share `slow` held up, the first measured."""
    nbytes = torch.tensor(SIZES, dtype=torch.float64).repeat(REPEATS)
    seconds = (alpha + nbytes * beta) * (1 + noise * torch.rand(len(nbytes), generator=rng, dtype=torch.float64))
    if slow:
        late = torch.arange(len(nbytes)) // len(SIZES) < round(slow * REPEATS)
        seconds[late] *= 10 + 90 * torch.rand(int(late.sum()), generator=rng, dtype=torch.float64)
    forwards = torch.arange(len(nbytes))
    orders = {"measured": forwards, "backwards": forwards.flip(0), "random": torch.randperm(len(nbytes), generator=rng)}
    return nbytes[orders[order]], seconds[orders[order]]


def least_squares(nbytes, seconds, weights) -> tuple[float, float]:
    rows = torch.stack([torch.ones_like(nbytes), nbytes], 1) * weights[:, None]
    a, b = torch.linalg.lstsq(rows, (seconds * weights)[:, None]).solution.flatten().tolist()
    return a, b


def fits(student, alpha: float, beta: float, nbytes, seconds, tolerance: float, why: str) -> None:
    got = student.fit_alpha_beta(nbytes.clone(), seconds.clone())
    is_pair = type(got) in (tuple, list) and len(got) == 2
    checks.that(is_pair, "fit_alpha_beta(nbytes, seconds) should return a pair: alpha, beta.", got=got)
    wrong = wrong_fits(alpha, beta, nbytes, seconds)
    for i, (name, value) in enumerate((("alpha", alpha), ("beta", beta))):
        # Where a mistake gives a right value, it is none.
        mistakes = {s: pair[i] for s, pair in wrong.items() if not abs(pair[i] - value) <= tolerance * value}
        mistakes = _near(got[i], mistakes)
        checks.close(got[i], value, name=name, rtol=tolerance, atol=0, why=why, mistakes=mistakes)


def wrong_fits(alpha: float, beta: float, nbytes, seconds) -> dict[str, tuple[float, float]]:
    """What plausible wrong fits give, by the sentence that names the mistake."""
    sizes = nbytes.unique()
    means = torch.stack([seconds[nbytes == size].mean() for size in sizes])
    return {
        "The two are swapped: alpha (seconds) first, then beta (seconds per byte).": (beta, alpha),
        "This is the bandwidth; beta is seconds per byte, its inverse.": (math.nan, 1 / beta),
        "This is ordinary least squares: the noise of the largest messages hides the smallest. Weight each message by "
        "1 / its time, so that errors count in percent.": least_squares(nbytes, seconds, torch.ones_like(seconds)),
        "This takes the mean of each size: one message that is a hundred times too slow changes it. Take the "
        "smallest.": (least_squares(sizes, means, 1 / means)),
    }


def _near(got, mistakes: dict) -> dict:
    """The mistakes that `got` is close to, as `got` itself: the check's own tolerance is too wide to tell them."""
    return {s: got for s, value in mistakes.items() if type(got) is float and math.isclose(got, value, rel_tol=0.02)}


@exercise.check(points=3)
def exact_times(student, rng):
    "Times without noise give alpha and beta exactly."
    why = "The times are exactly alpha + nbytes · beta."
    alpha, beta = machine(rng)
    fits(student, alpha, beta, *measurements(alpha, beta, rng), 1e-6, why)
    nbytes, seconds = measurements(alpha, beta, rng)
    some = torch.rand(len(nbytes), generator=rng) < 0.5  # each size occurs as often as chance has it
    some[[int((nbytes == size).nonzero()[0]) for size in (SIZES[0], SIZES[-1])]] = True
    fits(student, alpha, beta, nbytes[some], seconds[some], 1e-6, why)


@exercise.check(points=3, needs="exact_times")
def small_messages_count(student, rng):
    "With up to 10 % of noise alpha is right to 10 %; for any times the relative errors have the least sum of squares."
    for _ in range(3):
        alpha, beta = machine(rng)
        beta = max(beta, 5e-11)
        why = "Each time is alpha + nbytes · beta, and up to 10 % more."
        fits(student, alpha, beta, *measurements(alpha, beta, rng, noise=0.1), 0.1, why)
    for repeats in (REPEATS, whole_number(rng, 3, REPEATS)):
        nbytes = torch.tensor(SIZES, dtype=torch.float64)
        seconds = (alpha + nbytes * beta) * (1 + torch.rand(len(SIZES), generator=rng, dtype=torch.float64))
        right, order = least_squares(nbytes, seconds, 1 / seconds), torch.randperm(repeats * len(SIZES), generator=rng)
        why = "No line goes through these times, each measured several times: find the least sum of (error / time)²."
        fits(student, *right, nbytes.repeat(repeats)[order], seconds.repeat(repeats)[order], 1e-6, why)


@exercise.check(points=4, needs="exact_times")
def outliers_do_not(student, rng):
    "Two of nine messages of each size took 10 to 100 times as long: the fit does not change."
    for order in ("measured", "backwards", "random"):
        alpha, beta = machine(rng)
        why = "Two of nine messages of each size took 10 to 100 times as long, as on a machine with other work."
        fits(student, alpha, beta, *measurements(alpha, beta, rng, slow=0.22, order=order), 1e-3, why)
