"""A small text to learn language from, and its tokens; nothing to download."""

from collections.abc import Iterable
from functools import cache
from importlib import resources

import torch


@cache
def corpus() -> str:
    """63,172 characters of English, 81 kinds of them: the prose of this course's labs 01 to 08, a paragraph a line.

    Source: labs/source of this project in its first edition, without formulas and code; CC BY 4.0.
    """
    return resources.files("hpcdl.data").joinpath("corpus.txt").read_text(encoding="ascii")


class Characters:
    """Each character of `text` is a token, numbered in the order of the alphabet: `len(tokens)` of them.

    tokens = Characters(corpus())
    tokens.decode(tokens.encode("a net")) == "a net"
    """

    def __init__(self, text: str):
        self.alphabet = "".join(sorted(set(text)))
        self._number = {character: number for number, character in enumerate(self.alphabet)}

    def __len__(self) -> int:
        return len(self.alphabet)

    def encode(self, text: str) -> torch.Tensor:
        """Return the tokens of `text`, (len(text),) int64; ValueError names a character that the alphabet lacks."""
        try:
            return torch.tensor([self._number[character] for character in text], dtype=torch.int64)
        except KeyError as error:
            raise ValueError(f"text has {error}; the alphabet is {self.alphabet!r}") from None

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of `tokens`, ints or a flat tensor; ValueError names a token that has no character."""
        tokens = list(tokens)
        numbers = [int(token) if token == int(token) else -1 for token in tokens]
        if wrong := [token for token, number in zip(tokens, numbers, strict=True) if not 0 <= number < len(self)]:
            raise ValueError(f"a token is {wrong[0]}; they are whole numbers from 0 to {len(self) - 1}")
        return "".join(self.alphabet[number] for number in numbers)


def windows(
    tokens: torch.Tensor, length: int, batch: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """`batch` random pieces of `tokens` and what comes next: x and y, each (batch, length), y[:, i] follows x[:, i].

    Raises ValueError where `tokens` has no `length` + 1 tokens.
    """
    if length < 1 or len(tokens) <= length:
        raise ValueError(f"length is {length}; with {len(tokens)} tokens it is 1 to {len(tokens) - 1}")
    starts = torch.randint(len(tokens) - length, (batch, 1), generator=generator)
    pieces = tokens[starts + torch.arange(length + 1)]
    return pieces[:, :-1], pieces[:, 1:]
