"""Whether an order of samples is random, and a new one: not a list that is turned, cut, or taken in steps."""

import itertools
from collections import Counter

from .ladder import fail, that

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


def no_fixed_place(orders: list[list[int]], *, advice: str) -> None:
    """Check that no index is at one place in all orders: chance would do it once in n^(k - 2) for k orders of n."""
    fixed = next((place for place, indices in enumerate(zip(*orders, strict=True)) if len(set(indices)) == 1), None)
    if fixed is not None:
        fail(f"Index {orders[0][fixed]} is at place {fixed} in all {len(orders)} orders. {advice}")
