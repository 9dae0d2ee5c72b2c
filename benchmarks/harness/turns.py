"""Competitors take turns that rotate: what the machine does meanwhile meets all of them alike."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def rotated(competitors: Iterable[T], turn: int) -> list[T]:
    """All competitors, beginning with another one each turn."""
    everyone = list(competitors)
    first = turn % len(everyone)
    return everyone[first:] + everyone[:first]


def seconds(call: Callable[[], object]) -> float:
    """Return how long one call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
