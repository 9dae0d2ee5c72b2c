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
