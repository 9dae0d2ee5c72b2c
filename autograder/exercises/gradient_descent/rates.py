"""What convergence rates say about more workers. Oracle: the rates in exact fractions."""

from fractions import Fraction
from math import ceil

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.gradient_descent.drawing import integer

exercise = Exercise("rates", points=10, minutes=8)

RULES = SYNCHRONOUS, ASYNCHRONOUS = ("synchronous", "asynchronous")


def case(rng, workers: int) -> tuple[float, float, list[float]]:
    """The error wanted, the constant c and the seconds of each worker, so that no rounding decides."""
    while True:
        c, error = integer(rng, 9, 40) / 8, integer(rng, 5, 12) / 64
        seconds = [integer(rng, 2, 12) / 4 for _ in range(workers)]
        gradients = Fraction(c) ** 2 / Fraction(error) ** 2
        if all((gradients / n).denominator > 1 for n in (1, workers)) and len(set(seconds)) > (workers > 1):
            return error, c, seconds


def exact(rng, workers: int) -> tuple[float, float, list[float]]:
    """A case whose rate is equal to the error after a whole number of iterations; all numbers are powers of two."""
    error = 2.0 ** -integer(rng, 2, 6)
    return error, error * 2 ** integer(rng, 2, 6), [integer(rng, 2, 12) / 4 for _ in range(workers)]


def loose(rng, workers: int) -> tuple[float, float, list[float]]:
    """A case whose error is above c: one iteration is enough, and without one there is no rate."""
    c = integer(rng, 9, 40) / 8
    return c * integer(rng, 2, 5), c, [integer(rng, 2, 12) / 4 for _ in range(workers)]


def expected(error: float, c: float, seconds: list[float], rule: str) -> tuple[int, int, float]:
    gradients, n = (Fraction(c) / Fraction(error)) ** 2, len(seconds)
    if rule == SYNCHRONOUS:
        iterations = ceil(gradients / n)
        return iterations, n * iterations, float(iterations * max(seconds))
    return ceil(gradients), ceil(gradients), float(ceil(gradients) / sum(1 / Fraction(each) for each in seconds))


def ask(student, error, c, seconds, rule) -> tuple[int, int, float]:
    got = student.rates(error, c, list(seconds), rule)
    checks.that(
        type(got) in (tuple, list) and len(got) == 3,
        "rates returns three values: iterations, gradients and time.",
        got=got,
    )
    for name, value in zip(("iterations", "gradients"), got, strict=False):
        checks.that(type(value) is int, f"The number of {name} is a whole number, an int.", got=value)
    return tuple(got)


def counts_are(student, rng, rule: str) -> None:
    """Iterations and gradients are the fewest with which the rate keeps to the error."""
    for draw, workers in ((case, 1), (case, 4), (case, 7), (exact, 1), (exact, 4)):
        error, c, seconds = draw(rng, workers)
        got, right = ask(student, error, c, seconds, rule), expected(error, c, seconds, rule)
        gradients = float((Fraction(c) / Fraction(error)) ** 2)
        n = workers if rule == SYNCHRONOUS else 1
        mistakes = {
            "Round up: with one iteration less the rate is still above the error.": right[0] - 1,
            "At most `error`: an error that is equal is small enough.": right[0] + 1,
            "The square is missing: c / sqrt(x) = error means x = (c / error)².": ceil(c / error / n),
            "The rate has N I under the root: N workers need 1/N of the iterations.": ceil(gradients / workers**0.5),
            "That is one worker's number: N gradients in each iteration are averaged.": ceil(gradients),
            "An asynchronous update uses one gradient: the rate has no N.": ceil(gradients / workers),
            "The fraction is upside down: a smaller error needs more iterations.": ceil(1 / gradients / n),
        }
        checks.equal(
            got[0],
            right[0],
            name=f"the iterations for error = {error:g}, c = {c:g}, {workers} workers, {rule}",
            why=f"The fewest I with {'c / sqrt(N I)' if rule == SYNCHRONOUS else 'c / sqrt(I)'} <= error.",
            mistakes={sentence: value for sentence, value in mistakes.items() if value != right[0]},
        )
        each = "Each iteration has a gradient of every worker: N I of them."
        checks.equal(
            got[1],
            right[1],
            name=f"the gradients of {right[0]} iterations, {workers} workers, {rule}",
            why=each if rule == SYNCHRONOUS else "Each update has one gradient.",
            mistakes={each: right[0]} if right[0] != right[1] else {},
        )


@exercise.check(points=2)
def fewer_iterations(student, rng):
    "Synchronous: the iterations shrink with 1/N, and the gradients of all workers together do not."
    counts_are(student, rng, SYNCHRONOUS)


@exercise.check(points=2)
def as_many_updates(student, rng):
    "Asynchronous: each gradient is an update, and their number does not depend on N."
    counts_are(student, rng, ASYNCHRONOUS)


@exercise.check(points=3, needs="fewer_iterations")
def waits_for_the_slowest(student, rng):
    "Synchronous: an iteration takes as long as the slowest worker's gradient."
    for workers in (1, 3, 8):
        error, c, seconds = case(rng, workers)
        iterations, gradients, right = expected(error, c, seconds, SYNCHRONOUS)
        mistakes = {
            "The workers wait for the slowest one, not for the mean.": iterations * sum(seconds) / workers,
            "The workers wait for the slowest one, not the fastest.": iterations * min(seconds),
            "The workers compute at the same time, not one after another.": iterations * sum(seconds),
            "An iteration has the workers' gradients at the same time: its time counts once.": gradients * max(seconds),
        }
        checks.close(
            ask(student, error, c, seconds, SYNCHRONOUS)[2],
            right,
            name=f"the time of {iterations} iterations, seconds = {seconds}",
            mistakes={sentence: value for sentence, value in mistakes.items() if abs(value - right) > 1e-3},
        )


@exercise.check(points=3, needs="as_many_updates")
def each_at_its_own_pace(student, rng):
    "Asynchronous: worker k makes 1 / seconds[k] updates a second, and all of them count."
    for draw, workers in ((case, 1), (case, 3), (case, 8), (loose, 3)):
        error, c, seconds = draw(rng, workers)
        updates, _, right = expected(error, c, seconds, ASYNCHRONOUS)
        mistakes = {
            "No worker waits for the slowest one here.": updates * max(seconds) / workers,
            "Add up the updates a second, 1 / seconds[k], not the seconds.": updates * sum(seconds) / workers**2,
            "The workers compute at the same time: divide by the updates a second of all.": updates * sum(seconds),
            "At least one update: c / sqrt(I) is an error for I = 1 and more.": 0.0,
        }
        checks.close(
            ask(student, error, c, seconds, ASYNCHRONOUS)[2],
            right,
            name=f"the time of {updates} updates, seconds = {seconds}",
            mistakes={sentence: value for sentence, value in mistakes.items() if abs(value - right) > 1e-3},
        )
