"""Whether all randomness of an answer comes from the generator that it is given."""

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
