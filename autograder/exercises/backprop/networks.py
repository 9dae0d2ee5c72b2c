"""Networks that the checks of this lab draw, and the form of an answer about one."""

import itertools

from autograder import checks, show
from autograder.exercises.drawing import F64, normal

ACTIVATION = (
    "hpcdl.nn.mlp.sigma",
    "hpcdl.nn.mlp.sigma_prime",
)  # the lab gives both


def network(rng, widths, dtype=F64):
    """Random `(weights, biases)` for layers of these widths; no bias is zero."""
    weights = [normal(rng, m, n, dtype=dtype) for n, m in itertools.pairwise(widths)]
    return weights, [normal(rng, m, dtype=dtype) for m in widths[1:]]


def copies(tensors: list) -> list:
    """For the student's function, which may write into what it is given: the oracle needs it as it was."""
    return [t.clone() for t in tensors]


def widths_text(widths) -> str:
    return f"a {'-'.join(map(str, widths))} network"


def two_lists(got, call: str, names: tuple[str, str], lengths: tuple[int, int], why: str) -> None:
    """`got` is a pair of lists of these lengths."""
    wanted = f"({names[0]}, {names[1]}), two lists"
    checks.that(
        type(got) in (tuple, list) and len(got) == 2,
        f"{call} returned {show.an(show.type_name(got))}, expected {wanted}. End with `return {names[0]}, {names[1]}`.",
        got=got,
        expected=wanted,
    )
    for part, name, length in zip(got, names, lengths, strict=True):
        checks.that(
            type(part) in (list, tuple),
            f"{name} is {show.an(show.type_name(part))}, expected a list with a tensor for each layer.",
            got=part,
        )
        checks.length(part, length, name=name, why=why)
