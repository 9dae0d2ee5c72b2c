"""The best all-reduce by number of ranks and bytes, and where the answer changes."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hpcdl.cost.collectives import ALL_REDUCE, formula


def ranking(
    p: int,
    nbytes: float,
    alpha: float,
    beta: float,
    gamma: float = 0.0,
    *,
    algorithms: Iterable[str] = ALL_REDUCE,
    itemsize: int = 4,
) -> dict[str, float]:
    """Return the seconds of each algorithm, fastest first; ties keep the order of `algorithms`."""
    seconds = {name: formula(name)(p, nbytes, alpha, beta, gamma, itemsize=itemsize) for name in algorithms}
    return dict(sorted(seconds.items(), key=lambda item: item[1]))


def best(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, **options: Any) -> str:
    """Return the name of the fastest all-reduce of `nbytes` over `p` ranks; options as in `ranking`."""
    return next(iter(ranking(p, nbytes, alpha, beta, gamma, **options)))


def best_map(
    ranks: Iterable[int], sizes: Sequence[float], alpha: float, beta: float, gamma: float = 0.0, **options: Any
) -> list[list[str]]:
    """Return the best algorithm for each number of ranks (rows) and bytes (columns)."""
    return [[best(p, nbytes, alpha, beta, gamma, **options) for nbytes in sizes] for p in ranks]


class Stretch(NamedTuple):
    """A range of sizes: `algorithm` is best from `nbytes` up to the next stretch."""

    nbytes: int
    algorithm: str


def crossovers(
    p: int,
    alpha: float,
    beta: float,
    gamma: float = 0.0,
    *,
    largest: int = 1 << 30,
    itemsize: int = 4,
    **options: Any,
) -> list[Stretch]:
    """Return the best algorithm from one element to `largest` bytes, as stretches with boundaries exact to one element.

    The sizes 1, 2, 4, ... elements are compared, then each change is bisected; a stretch that begins and ends between
    two of these sizes is missed.
    """

    def winner(elements):
        return best(p, elements * itemsize, alpha, beta, gamma, itemsize=itemsize, **options)

    stretches, low = [Stretch(itemsize, winner(1))], 1
    while 2 * low * itemsize <= largest:
        for start, name in _changes(winner, low, 2 * low):
            stretches.append(Stretch(start * itemsize, name))
        low *= 2
    return stretches


def _changes(winner, low, high):
    """Bisect (low, high] for where the winner changes, finding every change between two different winners met."""
    if winner(low) == winner(high):
        return
    if high - low == 1:
        yield high, winner(high)
        return
    middle = (low + high) // 2
    yield from _changes(winner, low, middle)
    yield from _changes(winner, middle, high)
