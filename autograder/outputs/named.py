"""The sentences that a class was told, counted: those that differ in drawn numbers alone are one."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from autograder.feedback import NUMBER, without_numbers

VARIES = "…"


class Told(NamedTuple):
    """A sentence, how many students were told it, and how the first of them read it."""

    said: str
    times: int
    first: str


def counted(told: Iterable[str]) -> list[Told]:
    """Return what was told, the most frequent first; a number that differs is shown as "…"."""
    groups: dict[str, list[str]] = defaultdict(list)
    for sentence in told:
        groups[without_numbers(sentence)].append(sentence)
    found = [Told(common(sentences), len(sentences), sentences[0]) for sentences in groups.values()]
    return sorted(found, key=lambda told: -told.times)


def common(sentences: list[str]) -> str:
    """Return what sentences of the same words have in common."""
    columns = zip(*map(NUMBER.findall, sentences), strict=True)
    numbers = [column[0] if len(set(column)) == 1 else VARIES for column in columns]
    words = NUMBER.split(sentences[0])
    return "".join(word + number for word, number in zip(words, [*numbers, ""], strict=True))
