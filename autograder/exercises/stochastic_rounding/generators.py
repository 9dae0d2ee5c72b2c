"""Whether all randomness of an answer comes from the generator that it is given."""

import math

import torch

from autograder import checks


def fresh(rng) -> torch.Generator:
    return torch.Generator().manual_seed(int(torch.randint(2**31, (), generator=rng)))


NUMBERS = (
    "Draw every random number from the generator that you are given: torch.rand(shape, generator=generator). Without "
    "it torch draws from a state that the whole program shares."
)


def repeats(call, name: str) -> None:
    """The generator decides: from the same state the same, and continuing with it something else."""
    generator = torch.Generator().manual_seed(3)
    first, second = call(generator), call(generator)
    again = call(torch.Generator().manual_seed(3))
    checks.that(
        bool((first == again).all()), f"With a generator in the same state {name} gave another result. {NUMBERS}"
    )
    checks.that(
        bool((first != second).any()),
        f"{name} gave the same result twice in a row from one generator: don't seed it again, and don't copy it; draw "
        "from it.",
    )


def vary_as_chance(counts: torch.Tensor, n: int, odds: torch.Tensor, bounds: tuple[float, float], what: str) -> None:
    """Check that counts of n independent draws with these odds vary as such counts do: neither less nor more.

    The sum of (count - n p)² / (n p (1 - p)) has the chi-squared distribution with as many degrees of freedom as there
    are counts; `bounds` leave out 1e-9 on either side. Numbers that are spread evenly vary less, shared ones more.
    """
    squares = ((counts - n * odds) ** 2 / (n * odds * (1 - odds))).sum().item()
    low, high = bounds
    checks.that(
        low < squares < high,
        f"{what} vary too {'little' if squares <= low else 'much'} for independent random numbers: their squared "
        f"deviations add up to {squares:.3g} times what chance gives each, expected about {len(counts)}. Draw a random "
        "number for each, torch.rand(shape, generator=generator), and use it as it is.",
        expected=f"between {low:g} and {high:g}",
    )


RARE = 4e-6  # odds below those of a 0 among random numbers of 16 bits
ASKED, MOST = 50_000, 7  # how often it is asked for, and seen: more by chance once in 2e10 times


def seldom(happened: int, what: str) -> None:
    """Check that of `ASKED` events with the odds `RARE` hardly any happens: random numbers of few bits are 0 too
    often."""
    checks.that(
        happened <= MOST,
        f"{what} {happened} of {ASKED:,}, and by chance {RARE * ASKED:g} of them, seldom more than one. Random numbers "
        "of few bits are 0 too often: use torch.rand(shape, generator=generator) as it is.",
        got=happened,
        expected=f"at most {MOST}",
    )


def independent(happened: torch.Tensor, odds: torch.Tensor, what: str) -> None:
    """Check that events (steps, elements), 1.0 or 0.0, with `odds` (steps, 1) need independent random numbers.

    With z = (happened - odds) / sqrt(odds (1 - odds)), the sum of z_tc z_td z_sc z_sd over all pairs of steps t, s and
    of elements c, d has the mean 0 and, by chance, a deviation of 1 here. It is large if steps or elements share
    numbers.
    """
    steps, elements = happened.shape
    z = (happened - odds) / (odds * (1 - odds)).sqrt()
    products, squares = z @ z.T, z.square()
    all_pairs = products.square().sum() - products.diagonal().square().sum()
    with_itself = (squares.sum(0).square() - squares.square().sum(0)).sum()
    chance = 2 * math.sqrt(elements * (elements - 1) * steps * (steps - 1))
    deviation = ((all_pairs - with_itself) / chance).item()
    checks.that(
        abs(deviation) < 8,
        f"{what} are related, so random numbers are used again: draw a new one for each element in each step, "
        "torch.rand(shape, generator=generator).",
        got=f"{deviation:.3g} standard deviations from independent numbers",
        expected="less than 8",
    )
