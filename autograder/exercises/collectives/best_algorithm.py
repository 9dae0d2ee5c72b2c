"""The cheapest all-reduce for a message, and the sizes at which it changes. Oracle: costs on the simulated machine."""

import math
from functools import partial

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.collectives.predictions import machine, predicted, terms
from hpcdl.collectives import ALL_REDUCE

exercise = Exercise("best_algorithm", points=10, minutes=10, functions=("best_algorithm", "crossover"))


def whole(rng, low: int, high: int) -> int:
    """A number from `low` to `high`."""
    return int(torch.randint(low, high + 1, (), generator=rng))


@exercise.check(points=4)
def the_cheapest(student, rng):
    "best_algorithm names the cheapest for 2 to 33 ranks and 4 bytes to 1 GB, by the cost that it is given."
    asked = [(p, n) for p in (2, 3, 4, 6, 8, 12, 16, 31, 33) for n in (4, 10_000, 1_000_000, 1_000_000_000)]
    for p, nbytes in asked + [(whole(rng, 2, 20), 4 * whole(rng, 1, 9) * 10**power) for power in range(9)]:
        alpha, beta = machine(rng)
        costs = {name: predicted(name, p, nbytes, alpha, beta) for name in ALL_REDUCE}
        cheapest, second = sorted(costs, key=costs.__getitem__)[:2]
        if costs[second] < 1.01 * costs[cheapest]:
            continue  # as good as equal: either will do
        got = student.best_algorithm(p, nbytes, alpha, beta, predicted)
        checks.that(
            type(got) is str and got in costs,
            f"best_algorithm({p}, {nbytes}, {alpha}, {beta}) should be one of {', '.join(costs)}.",
            got=got,
        )
        if got != cheapest:
            raise checks.CheckFailure(
                f"best_algorithm({p}, {nbytes}, {alpha}, {beta}) is not the cheapest.",
                got=f"{got!r}, {1e6 * costs[got]:.4g} µs",
                expected=f"{cheapest!r}, {1e6 * costs[cheapest]:.4g} µs",
                mistake=wrong_choice(got, p, costs),
            )
    for name in ALL_REDUCE:
        got = student.best_algorithm(4, 1000, 1e-5, 1e-10, partial(favours, name))
        checks.that(
            got == name,
            f"best_algorithm(4, 1000, 1e-05, 1e-10, cost) is {show.show(got)} where `cost` gives {name!r} a millionth "
            "of what it gives the others. Call the argument `cost`, for each of ALGORITHMS.",
        )


def favours(favourite: str, algorithm: str, p: int, nbytes: float, alpha: float, beta: float) -> float:
    """Another cost: the favourite is the cheapest."""
    return predicted(algorithm, p, nbytes, alpha, beta) * (1 if algorithm == favourite else 1e6)


def wrong_choice(got: str, p: int, costs: dict[str, float]) -> str:
    """What the choice of `got` optimises instead of the cost."""
    messages, nbytes = ({name: terms(name, p)[i] for name in costs} for i in (0, 1))
    if costs[got] == max(costs.values()):
        return "This is the most expensive: take the minimum."
    if math.isclose(nbytes[got], min(nbytes.values())):
        return "It sends the fewest bytes, but alpha decides for small messages."
    if math.isclose(messages[got], min(messages.values())):
        return "It sends the fewest messages, but beta decides for large ones."
    return ""


PAIRS = (  # that cross, and ranks to try them on
    ("recursive_doubling", "rabenseifner", (4, 8, 16, 6)),
    ("recursive_doubling", "ring", (3, 6, 8, 12)),
    ("tree", "ring", (4, 7, 8)),
    ("rabenseifner", "ring", (6, 12, 31)),
)


def meeting_point(first: str, second: str, p: int, alpha: float, beta: float) -> float:
    (a1, b1), (a2, b2) = terms(first, p), terms(second, p)
    return (a2 - a1) * alpha / ((b1 - b2) * beta)


def drawn_pairs(rng) -> list[tuple[str, str, int]]:
    """Of any two algorithms on 2 to 20 ranks, some whose costs cross."""
    names, found = list(ALL_REDUCE), []
    for _ in range(10):
        first, second = (names[i] for i in torch.randperm(len(names), generator=rng)[:2].tolist())
        p = whole(rng, 2, 20)
        messages, nbytes = (a - b for a, b in zip(terms(first, p), terms(second, p), strict=True))
        if abs(messages) > 0.5 and abs(nbytes) > 0.01 and messages * nbytes < 0:
            found.append((first, second, p))
    return found


@exercise.check(points=4)
def crossover_in_bytes(student, rng):
    "crossover gives the message size at which two algorithms cost the same."
    pairs = [(first, second, p) for first, second, ranks in PAIRS for p in ranks]
    for first, second, p in pairs + drawn_pairs(rng):
        alpha, beta = machine(rng)
        expected = meeting_point(first, second, p, alpha, beta)
        for names in ((first, second), (second, first)):
            got = student.crossover(*names, p, alpha, beta, predicted)
            if type(got) is float and got < 0:
                checks.fail(
                    f'crossover("{names[0]}", "{names[1]}", {p}, ...) is {show.number(got)}: a size is positive. '
                    "If you subtract the alphas in one order, subtract the betas in the other.",
                    got=got,
                    expected=expected,
                )
            mistakes = {
                "These are elements of 4 bytes, expected bytes.": expected / 4,
                "Your fraction is upside down: alphas in the numerator, betas in the denominator.": 1 / expected,
                "Divide by beta, too: bytes, not seconds.": expected * beta,
            }
            name = f'crossover("{names[0]}", "{names[1]}", {p}, {alpha}, {beta})'
            why = "Both cost a·alpha + b·nbytes·beta: two straight lines in nbytes."
            checks.close(got, expected, name=name, mistakes=mistakes, why=why, atol=0.0)  # 1 / expected is tiny


@exercise.check(points=1, needs="crossover_in_bytes")
def some_never_cross(student, rng):
    "crossover is math.inf if one algorithm is better at every size."
    power = 2 ** whole(rng, 3, 5)
    for better, worse, p in (
        ("rabenseifner", "ring", power),
        ("recursive_doubling", "tree", power),
        ("tree", "naive", whole(rng, 4, 12)),
    ):
        alpha, beta = machine(rng)
        for first, second in ((better, worse), (worse, better)):
            got = student.crossover(first, second, p, alpha, beta, predicted)
            # Equal slopes may differ in a last bit: a size of 10^12 alpha/beta is never, too.
            checks.that(
                checks.is_number(got) and got >= 1e12 * alpha / beta,
                f'crossover("{first}", "{second}", {p}, ...) should be math.inf: {better} never costs more than '
                f"{worse}, so the lines do not meet at any size above 0.",
                got=got,
                expected="inf",
            )


@exercise.check(points=1, needs=("the_cheapest", "crossover_in_bytes"))
def changes_at_the_crossover(student, rng):
    "best_algorithm changes its answer at the crossover."
    for first, second, p in (("recursive_doubling", "rabenseifner", 8), ("recursive_doubling", "ring", 3)):
        alpha, beta = machine(rng)
        size = student.crossover(first, second, p, alpha, beta, predicted)
        name = f'crossover("{first}", "{second}", {p}, {alpha}, {beta})'
        checks.close(size, meeting_point(first, second, p, alpha, beta), name=name)
        size = float(size)
        for nbytes, name in ((0.98 * size, first), (1.02 * size, second)):
            got = student.best_algorithm(p, nbytes, alpha, beta, predicted)
            checks.equal(
                got, name, name=f"best_algorithm({p}, {nbytes:.6g}, {alpha}, {beta})", why="2 % from the crossover"
            )
