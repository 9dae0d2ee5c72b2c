"""The ledger of guesses: what a student expected before a cell ran, and the result. Never graded.

A guess is wrong by log10(guess / truth): 0.3 is a factor of 2, 1 a factor of 10, and too low is as bad as too high.
How well people judge what they do not know can be measured and trained: S. Lichtenstein, B. Fischhoff, L. D. Phillips
(1982), "Calibration of probabilities: The state of the art to 1980".
"""

import ast
import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcdl.journal import Journal, beside
from hpcdl.moved import now

NAME = ".guesses.jsonl"  # in the folder of the labs; JupyterLab does not list it
VARIABLE = "HPCDL_GUESSES"  # another file, or no file if empty; OFF: ask nothing
OFF = "off"
ALL = "*"  # instead of a name: forget all lines above
OWN = "your_program."  # begins the names of answers about a student's own program: its truth is the student's own

Answer = float | str | None


@dataclass(frozen=True)
class Guess:
    """A `guess` at "slug.name": a number in `unit`, a choice, or None (skipped). `truth` is None until it is known.

    `error` is log10(guess / truth); None for choices, or if either number is not above 0.
    """

    name: str
    guess: Answer
    truth: Answer = None
    unit: str = ""
    error: float | None = None
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def lab(self) -> str:
        """Return its lab's slug."""
        return self.name.partition(".")[0]

    @property
    def is_choice(self) -> bool:
        """Return whether the guess is a choice between several answers."""
        return isinstance(self.guess, str)

    def seen(self, truth: Answer) -> "Guess":
        """Return this guess with its truth."""
        return replace(self, truth=truth, error=error(self.guess, truth))


def error(guess: Answer, truth: Answer) -> float | None:
    """Return log10(guess / truth) if both are above 0, else None."""
    if isinstance(guess, str | None) or isinstance(truth, str | None):
        return None
    possible = 0 < guess < math.inf and 0 < truth < math.inf
    return math.log10(guess) - math.log10(truth) if possible else None


def file_in(folder: Path) -> Path | None:
    """Return the file for the guesses of the labs in `folder`, or the one that $HPCDL_GUESSES names, or None."""
    return None if os.environ.get(VARIABLE) == OFF else beside(folder, NAME, VARIABLE)


class Ledger:
    """All guesses so far, from earlier kernels and other notebooks too; with `path` None they stay in memory."""

    def __init__(self, path: Path | None = None):
        self.journal = Journal(path, _guess)

    @property
    def guesses(self) -> dict[str, Guess]:
        """Return the latest guess for each name, in the order in which they were first made.

        They leave out what students said about their own programs: each program has a truth of its own.
        """
        return {name: guess for name, guess in self.answers.items() if not name.startswith(OWN)}

    @property
    def answers(self) -> dict[str, Guess]:
        """Return the guesses and, under names that begin with `OWN`, the answers about the student's own programs."""
        self.journal.read()
        found: dict[str, Guess] = {}
        for line in self.journal.lines:
            if line.name == ALL:
                found.clear()
            else:
                found[line.name] = line
        return found

    def add(self, guess: Guess) -> None:
        """Store it, also in the file if the file can be written."""
        self.journal.add(guess)

    def reset(self) -> None:
        """Start over: the lines stay in the file but no longer count."""
        self.add(Guess(ALL, None))


def _guess(content: Any) -> Guess:
    """Parse a guess from its line; raise ValueError or TypeError if it is not a guess."""
    guess = Guess(**content)
    datetime.fromisoformat(guess.when), float(guess.error or 0)
    if not (isinstance(guess.name, str) and isinstance(guess.unit, str)):
        raise TypeError(f"name={guess.name!r}, unit={guess.unit!r}: both are text")
    if not all(isinstance(answer, int | float | str | None) for answer in (guess.guess, guess.truth)):
        raise TypeError(f"guess={guess.guess!r}, truth={guess.truth!r}: each is a number, a choice or None")
    return replace(guess, name=_moved(guess.name))


def _moved(name: str) -> str:
    """Return the current name of a guess, or of an answer about a program of an exercise that moved."""
    if not name.startswith(OWN):
        return now(name)[0]
    exercise, _, what = name.removeprefix(OWN).rpartition(".")
    return f"{OWN}{now(exercise)[0]}.{what}"


def questions(notebooks: Iterable[Path]) -> dict[str, tuple[str, str]]:
    """Return the words and the unit of every question that these notebooks ask, by name."""
    found: dict[str, tuple[str, str]] = {}
    for path in notebooks:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code" and "guess(" in (code := "".join(cell["source"])):
                found.update(_asked(code))
    return found


def _asked(code: str) -> dict[str, tuple[str, str]]:
    try:
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except SyntaxError:  # a cell with a magic
        return {}
    found = {}
    for call in calls:
        texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if isinstance(call.func, ast.Name) and call.func.id == "guess" and len(texts) == 2:
            units = [option.value for option in call.keywords if option.arg == "unit"]
            unit = str(units[0].value) if units and isinstance(units[0], ast.Constant) else ""
            found[texts[0]] = (texts[1], unit)
    return found


def errors(guesses: Iterable[Guess]) -> list[float]:
    """Return log10(guess / truth) of every numeric guess whose truth is known."""
    return [guess.error for guess in guesses if guess.error is not None]


def within(factor: float, found: list[float]) -> int:
    """Count the errors within a factor, up or down; rounding in the last digits is forgiven."""
    return sum(abs(error) <= math.log10(factor) + 1e-9 for error in found)


def summary(guesses: Iterable[Guess]) -> str:
    """Say in one to three sentences how good the guesses are."""
    guesses = list(guesses)
    found, choices = errors(guesses), [guess for guess in guesses if guess.is_choice and guess.truth is not None]
    said = [_numbers(found)] if found else []
    if choices:
        right = sum(guess.guess == guess.truth for guess in choices)
        said.append(f"{right} of {_many(len(choices), 'choice')} right.")
    return " ".join(said) or "No guesses yet: the labs ask for them, above some experiments."


def _numbers(found: list[float]) -> str:
    said = f"{_many(len(found), 'number')} guessed: {within(2, found)} within a factor of 2"
    said += f", {within(10, found)} within a factor of 10."
    lean = sum(found) / len(found)
    if len(found) < 5 or abs(lean) < math.log10(1.25):  # the mean of few numbers says nothing
        return said
    return f"{said} On the whole {10 ** abs(lean):.2g} times too {'high' if lean > 0 else 'low'}."


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
