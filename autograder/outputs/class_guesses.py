"""Draw what a class guessed, without names: a page for the next lecture, one picture for each question.

Students' guesses are in the files `.guesses.jsonl` next to their notebooks. They belong to the students, who hand them
in if they like. A question with fewer than `LEAST` answers is not shown, since few answers are almost names.
"""

import math
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup, escape

from hpcdl import guesses, labs

from .load import ResultError

LEAST = 3  # fewest answers to show a question
FACTOR = 10 ** (1 / 4)  # four bars to a decade
WIDTH, HEIGHT, BASE = 640, 150, 120  # of a picture, in pixels; the bars stand on the base


@dataclass
class GuessQuestion:
    """One question: its words and unit, the answers, and the truths found on students' machines."""

    name: str
    text: str
    unit: str = ""
    answers: list[float | str] = field(default_factory=list)
    truths: list[float | str] = field(default_factory=list)
    rather_see: int = 0

    @property
    def truth(self) -> float | str | None:
        """Return the median truth: a measured one differs from machine to machine."""
        if not self.truths:
            return None
        numbers = [truth for truth in self.truths if not isinstance(truth, str)]
        return statistics.median(numbers) if numbers else Counter(self.truths).most_common(1)[0][0]

    @property
    def summary(self) -> str:
        """Say how many answered, and how good the answers were."""
        said = f"{len(self.answers)} answers"
        said += f", {self.rather_see} would rather see" if self.rather_see else ""
        truth = self.truth
        if isinstance(truth, str):
            return f"{said}; {sum(answer == truth for answer in self.answers)} right: {truth}."
        errors = [e for answer in self.answers if (e := guesses.error(answer, truth)) is not None]
        if not errors:
            return f"{said}."
        return f"{said}; {guesses.within(2, errors)} within a factor of 2 of {truth:.3g} {self.unit}".rstrip() + "."

    @property
    def picture(self) -> Markup:
        """Draw the answers as bars, the truth as a line or a filled bar."""
        numbers = [answer for answer in self.answers if not isinstance(answer, str) and answer > 0]
        return _numbers(numbers, self.truth, self.unit) if numbers else _choices(self.answers, self.truth)


def files(folder: Path) -> list[Path]:
    """Find the ledgers below `folder`, whatever the names of students' folders or files."""
    found = sorted(path for path in folder.rglob("*guesses*.jsonl") if path.is_file())
    if not found:
        raise ResultError(
            f"there are no guesses in {folder}; collect the files {guesses.NAME} that lie next to students' notebooks"
        )
    return found


def collected(folder: Path, least: int = LEAST) -> list[GuessQuestion]:
    """Return the questions that at least `least` students answered, in the order of the course."""
    words = guesses.questions(labs.notebooks(labs.shipped()))
    found = {name: GuessQuestion(name, text, unit) for name, (text, unit) in words.items()}
    for path in files(folder):
        for guess in guesses.Ledger(path).guesses.values():
            _add(found.setdefault(guess.name, GuessQuestion(guess.name, guess.name, guess.unit)), guess)
    return [question for question in found.values() if len(question.answers) >= least]


def _add(question: GuessQuestion, guess: guesses.Guess) -> None:
    if guess.guess is None:
        question.rather_see += 1
    else:
        question.answers.append(guess.guess)
    if guess.truth is not None:
        question.truths.append(guess.truth)


# ---------------------------------------------------------------------------------------------- pictures


def _numbers(numbers: list[float], truth: float | str | None, unit: str) -> Markup:
    """Return a histogram on a logarithmic axis."""
    bins = Counter(math.floor(math.log(number, FACTOR)) for number in numbers)
    known = truth if isinstance(truth, float | int) and truth > 0 else None
    place = math.log(known, FACTOR) if known else min(bins)
    low, high = min(*bins, math.floor(place)) - 2, max(*bins, math.ceil(place)) + 2
    step = WIDTH / (high - low)
    bars = [_bar(step * (k - low), step * 0.9, n / max(bins.values()), "bar", str(n)) for k, n in bins.items()]
    parts = [bar for bar, _ in bars]
    if known:
        x = step * (place - low)
        parts.append(Markup('<line class="truth" x1="{0:.1f}" x2="{0:.1f}" y1="8" y2="{1}"/>').format(x, BASE))
    parts += [count for _, count in bars] + _decades(low, high, step, unit)  # above the line
    said = f"{len(numbers)} guesses between {min(numbers):.3g} and {max(numbers):.3g} {unit}"
    return _svg(parts, said + (f"; it was {known:.3g}" if known else ""))


def _decades(low: int, high: int, step: float, unit: str) -> list[Markup]:
    """Return a label below each power of ten."""
    whole = [k for k in range(low + 1, high) if k % 4 == 0]  # not at the very edge, where a label is cut
    every = max(1, len(whole) // 6)
    return [
        Markup('<text x="{:.1f}" y="{}">{} {}</text>').format(step * (k - low), BASE + 20, f"{FACTOR**k:.3g}", unit)
        for k in whole[::every]
    ]


def _choices(answers: list[float | str], truth: float | str | None) -> Markup:
    """Return a bar for each choice; the right one is filled."""
    counts = Counter(map(str, answers))
    names = sorted(counts, key=lambda name: -counts[name])
    step, parts = WIDTH / len(names), list[Markup]()
    for k, name in enumerate(names):
        look = "bar right" if name == truth else "bar"
        parts += _bar(step * k + 0.2 * step, 0.5 * step, counts[name] / counts[names[0]], look, str(counts[name]))
        parts.append(Markup('<text x="{:.1f}" y="{}">{}</text>').format(step * (k + 0.45), BASE + 20, name))
    return _svg(parts, ", ".join(f"{name}: {counts[name]}" for name in names))


def _bar(x: float, width: float, share: float, look: str, said: str) -> tuple[Markup, Markup]:
    """Return a bar and the text above it."""
    height = share * (BASE - 30)
    bar = Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')
    text = Markup('<text x="{:.1f}" y="{:.1f}">{}</text>')
    return bar.format(look, x, BASE - height, width, height), text.format(x + width / 2, BASE - height - 6, said)


def _svg(parts: list[Markup], label: str) -> Markup:
    frame = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, label)
    return frame + Markup("").join(parts) + Markup("</svg>")


def by_lab(questions: list[GuessQuestion]) -> dict[str, list[GuessQuestion]]:
    """Return the questions of each lab, by its slug."""
    found = defaultdict(list)
    for question in questions:
        found[str(escape(question.name.partition(".")[0]))].append(question)
    return dict(found)
