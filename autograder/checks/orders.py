"""Whether an order of samples is random, and a new one: not a list that is turned, cut, or taken in steps."""

import itertools
import math
from collections import Counter

import torch

from .ladder import that

SHUFFLED = 50  # an order of as many indices, or more, can be judged
MOST = 15  # steps of one length: of the orders of 50 indices, fewer than 49 / 15! = 4e-11 have so many


def steps_alike(order: list[int]) -> tuple[int, int]:
    """Return the most frequent step from an index to the next, modulo their number, and how often it comes."""
    steps = Counter((b - a) % len(order) for a, b in itertools.pairwise(order))
    step, times = steps.most_common(1)[0]
    return step if step <= len(order) // 2 else step - len(order), times


def shuffled(order: list[int], *, advice: str) -> None:
    """Check that an order of at least `SHUFFLED` indices is random: its steps are of many lengths.

    One that turns a list, reverses it, takes every k-th of it or keeps neighbours together has few.
    """
    step, times = steps_alike(order)
    that(
        times < MOST,
        f"The order is not random: {times} of {len(order) - 1} times the next index is {abs(step)} "
        f"{'more' if step > 0 else 'less'} than the one before, as in a list that is turned or cut. {advice}",
        got=order,
    )


def drawn_again(order: list[int], before: list[int], *, advice: str) -> None:
    """Check that an order is drawn, and not made of the one before, as `shuffled` does for 0, 1, 2, ..."""
    step, times = steps_alike([before.index(index) for index in order])
    that(
        times < MOST,
        f"The order of an epoch is made of the one before: {times} of {len(order) - 1} times the next index is the one "
        f"that came {abs(step)} {'later' if step > 0 else 'earlier'} there. {advice}",
        got=order,
        expected="a permutation of its own",
    )


def fair_places(orders: list[list[int]], *, advice: str) -> None:
    """Check that every index comes equally often at every place, in some hundred orders of the same n indices.

    Of the n² counts the sum of (count - mean)² / mean, times (n - 1) / n, has about the chi-squared distribution with
    (n - 1)² degrees of freedom, which is larger than `most` once in 1e9 (Laurent and Massart, 2000).
    """
    n, mean = len(orders[0]), len(orders) / len(orders[0])
    counts = torch.zeros(n, n).index_put_(
        (torch.arange(n).expand(len(orders), n), torch.tensor(orders)), torch.ones(()), accumulate=True
    )
    free, x = (n - 1) ** 2, math.log(1e9)
    most = free + 2 * math.sqrt(free * x) + 2 * x
    found = ((counts - mean) ** 2 / mean).sum().item() * (n - 1) / n
    place, index = divmod(int((counts - mean).abs().argmax()), n)
    that(
        found < most,
        f"Index {index} is at place {place} in {int(counts[place, index])} of {len(orders)} orders, expected about "
        f"{mean:.0f}: the order is not random. {advice}",
        got=f"chi-squared {found:.0f}",
        expected=f"about {free}, less than {most:.0f}",
    )
