"""Sums that are rounded after every addition. Oracle: the same sums, rounded by the oracle."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks import number_formats as formats
from autograder.checks.number_formats import digits, exact
from autograder.exercises.drawing import F32, whole_number
from autograder.exercises.stochastic_rounding.generators import (
    ASKED,
    RARE,
    fresh,
    independent,
    repeats,
    seldom,
    vary_as_chance,
)
from autograder.exercises.stochastic_rounding.inputs import are_neighbours, between
from hpcdl.numerics.rounding import BF16, FP8_E5M2, FP16, Fixed

exercise = Exercise("running_sum", points=15, minutes=10, uses=("round_nearest_even", "stochastic_round"))

COLUMNS = 4000  # sums that are run side by side


def nearest_sums(xs, fmt, *, before: bool = False, after: bool = False) -> torch.Tensor:
    """Partial sums, rounded after every addition; or the terms `before` it, or the exact sums `after` it, alone."""
    if after:
        return formats.nearest(xs.cumsum(0), fmt)
    total, sums = torch.zeros_like(xs[0]), []
    for x in xs:
        total = total + formats.nearest(x, fmt).float() if before else formats.nearest(total + x, fmt).float()
        sums.append(total)
    return torch.stack(sums).double()


def exact_sums(got, xs, fmt, mistakes=None) -> None:
    """Check sums that are rounded to nearest; the sentence names the first wrong step, and what it adds to what."""
    right, columns = nearest_sums(xs, fmt), xs[0].numel()

    def place(first: int) -> str:
        before = right.reshape(-1)[first - columns].item() if first >= columns else 0.0
        return f"after step {first // columns + 1}, {digits(before)} + {digits(xs.reshape(-1)[first].item())}"

    exact(got, right, xs, name=f'running_sum(xs, {fmt}, "nearest", generator)', mistakes=mistakes, place=place)


def ask_sum(student, xs, fmt, mode, generator=None):
    generator = generator or torch.Generator().manual_seed(0)
    return summed(student.running_sum(xs.clone(), fmt, mode, generator), xs, fmt, mode)


def summed(got, xs, fmt, mode) -> torch.Tensor:
    """Return the sums `got`; those of mode "stochastic" are neighbours of the exact ones."""
    name = f"running_sum(xs, {fmt}, {mode!r}, generator)"
    checks.tensor(got, name=name, shape=xs.shape, dtype=F32)
    if mode == "stochastic":
        before = torch.cat([torch.zeros_like(got[:1]), got[:-1]])
        are_neighbours(got, before + xs, fmt, f"{name}: a sum is", "the sum before it + x")
    return got


def sizes(rng, fmt, n: int, columns: int = 1) -> torch.Tensor:
    """Terms of 0.2 to 0.9 ε, in multiples of ε/16, so that float32 adds them exactly."""
    return torch.randint(3, 15, (n, columns), generator=rng) / 16 * 2.0**-fmt.fl


def fine(rng, n: int) -> torch.Tensor:
    """Shares of ε from 0.05 to 0.22 that random numbers of few bits cannot give; float32 still adds them exactly."""
    return (2 * torch.randint(1536, 7168, (n, 1), generator=rng) + 1) / 65_536


@exercise.check(points=4)
def rounded_after_every_addition(student, rng):
    "After each addition the sum is rounded to the format; the result holds all partial sums."
    for fmt in (Fixed(4, 4), Fixed(8, 8)):
        xs = sizes(rng, fmt, 40)[:, 0] * 3
        mistakes = {
            "This rounds sums that were added exactly: round after each addition, and continue from the rounded sum.": (
                nearest_sums(xs, fmt, after=True)
            ),
            "This rounds the terms and not the sum: after each addition, round the sum.": nearest_sums(
                xs, fmt, before=True
            ),
            "The sum is not rounded at all.": xs.double().cumsum(0),
        }
        exact_sums(ask_sum(student, xs, fmt, "nearest"), xs, fmt, mistakes)
    for xs in between(rng, FP8_E5M2, 33).reshape(11, 3).clamp(-4, 4).split([10, 1]):
        got = ask_sum(student, xs, FP16, "nearest")
        exact_sums(got, xs, FP16)


@exercise.check(points=3, needs="rounded_after_every_addition")
def nearest_stalls(student, rng):
    "Rounded to nearest, a sum of ones in bfloat16 stalls at 256, and no further term changes it."
    for fmt, x, stop in ((BF16, 1.0, 256.0), (BF16, 0.375, 128.0), (FP16, 0.25, 512.0)):
        xs = torch.full((int(stop / x * 1.2),), x)
        got = ask_sum(student, xs, fmt, "nearest")[-1].item()
        checks.that(
            got == stop,
            f"{len(xs)} times {x:g} in {fmt} end at {got:g}; rounded to nearest they stall at {stop:g}.",
            why=f"From {stop:g} on {x:g} is at most half a spacing of {fmt}, and a tie goes back to the even one.",
        )


@exercise.check(points=5, needs="rounded_after_every_addition", seconds=10)
def stochastic_does_not_stall(student, rng):
    "Rounded at random the sum is right on average; each element has its own random number."
    fmt, n = Fixed(8, 8), 60
    eps = fmt.eps
    halves = ask_sum(student, torch.full((n, 50), eps / 2), fmt, "stochastic", fresh(rng))[-1] / eps
    checks.that(
        bool((halves % n != 0).any()) or bool((halves == halves[0]).all()),
        f"Of 50 sums of {n} times ε/2 each one went up in every step or in none: draw new random numbers in each step.",
    )

    def average():
        xs = fine(rng, n).mul(eps).expand(n, COLUMNS).clone()  # far below ε/2
        sums = ask_sum(student, xs, fmt, "stochastic", fresh(rng)) / eps
        below = "Terms below ε/2 never take the sum away from 0: in this mode, round it with stochastic_round."
        checks.that(bool(sums.any()), below)
        step = next((i for i, row in enumerate(sums, start=1) if bool((row == row[0]).all())), 0)
        checks.that(
            not step,
            f"{COLUMNS} equal sums next to each other are all the same after addition {step}: draw a random number for "
            "each column of xs in each step, not one for all.",
        )
        went_up, odds = sums.diff(dim=0, prepend=torch.zeros(1, COLUMNS)).double(), xs[:, :1].double() / eps
        columns = f"Of {COLUMNS} columns the numbers that go up in the {n} steps"
        vary_as_chance(went_up.sum(1), COLUMNS, odds[:, 0], (15.0, 152.0), columns)
        independent(went_up, odds, f"Of {COLUMNS} columns those that go up in one of {n} steps and in another")
        right = xs[:, 0].double().sum().item() / eps
        why = "E[Round(s + x)] = s + x at each step, so the mean of the sums is the exact sum."
        checks.mean(sums[-1], right, low=0, high=n, what=f"the sum of {n} terms below ε/2, in ε,", why=why)

    checks.retested(average)
    tiny = torch.full((10, ASKED // 10), RARE * eps)
    moves = ask_sum(student, tiny, fmt, "stochastic", fresh(rng)).diff(dim=0, prepend=torch.zeros(1, ASKED // 10))
    seldom(int(moves.count_nonzero()), f"Each term is {RARE:g} ε. Sums go up in")
    moves_in_floating_point(student, rng)
    stops_at_the_ends(student, rng)


def moves_in_floating_point(student, rng) -> None:
    """In bfloat16 a sum of ones continues beyond 256, where rounding to nearest stalls: up by 2 in every other step."""
    ones = torch.ones(300, 100)

    def average():
        moves = ask_sum(student, ones, BF16, "stochastic", fresh(rng)).diff(dim=0)[256:] / 2
        why = "From 256 to 512 bfloat16 has only even numbers: s + 1 lies half way, and E[Round(s + 1)] = s + 1."
        checks.mean(moves, 0.5, low=0, high=1, what="a move of a sum of ones beyond 256 in BF16, by 2,", why=why)

    checks.retested(average)


def stops_at_the_ends(student, rng) -> None:
    """A sum in fixed point stays at the end that it reaches."""
    fmt = Fixed(4, 4)
    ask_sum(student, torch.tensor([[1.0, -1.0]]).repeat(12, 20) * (1 + fmt.eps / 2), fmt, "stochastic", fresh(rng))


@exercise.check(points=3, needs="rounded_after_every_addition")
def its_own_generator(student, rng):
    "All randomness comes from the generator: the same state gives the same sum; xs is unchanged."
    xs = sizes(rng, Fixed(8, 8), 20).expand(20, 50).clone()
    repeats(lambda generator: ask_sum(student, xs, Fixed(8, 8), "stochastic", generator), "running_sum")
    some = sizes(rng, Fixed(8, 8), whole_number(rng, 5, 60), 2 * whole_number(rng, 1, 3))
    for mode in ("nearest", "stochastic"):
        for terms in (xs, some):
            leaves_terms_alone(student, terms, mode, fresh(rng))
    leaves_terms_alone(student, some[:, 0].clone(), "nearest", fresh(rng))


def leaves_terms_alone(student, xs, mode: str, generator) -> None:
    """Check that xs is the same after the call, and that the sums are right."""
    fmt = Fixed(8, 8)
    got = checks.leaves_alone(lambda xs: student.running_sum(xs, fmt, mode, generator), xs=xs)
    summed(got, xs, fmt, mode)
    if mode == "nearest":
        exact_sums(got, xs, fmt)
