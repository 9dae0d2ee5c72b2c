"""Guesses: a question above an experiment, which waits for the answer and then says how close it was.

guess("ddp.speed_up", "Two ranks: how many times faster than one?", unit="times")

with when_solved():
    guessed("ddp.speed_up")
    ...
    reveal("ddp.speed_up", alone / together)
"""

import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from hpcdl.guesses import OFF, VARIABLE, Answer, Guess, Ledger, file_in
from hpcdl.machine import QuietTogether
from hpcdl.saying import sentences
from hpcdl.widgets.kit.units import number
from hpcdl.widgets.kit.waiting import Waiting, is_waiting_allowed

MINE, SEE = "That is my guess", "I'd rather see"
STYLE = Path(__file__).with_name("guessing.css")
BUSY = (
    "Other programs kept this machine's processors busy meanwhile, so this is not kept as the truth: run the "
    "experiment again when they have ended."
)
_shown: dict[str, "Question"] = {}  # in this kernel, by name
_begun: dict[str, QuietTogether] = {}  # by name, since the experiment began


def _shell() -> Any:
    """Return IPython's shell in a notebook, otherwise None."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


@cache
def ledger() -> Ledger:
    """Return the student's ledger, next to the notebook, in the kernel's folder; in memory outside a notebook."""
    return Ledger(file_in(Path.cwd()) if _shell() else None)


def is_interactive() -> bool:
    """Return whether the user of this cell can answer.

    A page can, since it also answers `input()`; `hpcdl submit`, nbconvert and scripts cannot, and nothing asks if
    $HPCDL_GUESSES is "off".
    """
    kernel = getattr(_shell(), "kernel", None)
    return os.environ.get(VARIABLE) != OFF and bool(getattr(kernel, "_allow_stdin", False))


def guess(
    name: str,
    question: str,
    *,
    unit: str = "",
    choices: tuple[str, ...] = (),
    truth: Callable[[], Answer] | None = None,
) -> "Question":
    """Ask for a number above 0, in `unit`, or for one of `choices`; the cell that has `guessed(name)` waits for it.

    `name` is "slug.what", one for each question of the course; ValueError where it is not, or with a single choice.
    `truth()` answers at once, if there is no experiment to wait for.
    """
    if not re.fullmatch(r"[a-z]\w*\.[a-z]\w*", name):
        raise ValueError(f'name={name!r}: a guess is called as an exercise is, "slug.what"')
    if len(choices) == 1 or (choices and unit):
        raise ValueError(f"{name}: choices={choices!r}, unit={unit!r}: give at least two choices, or a unit")
    _shown[name] = Question(name, question, unit, choices, truth)
    return _shown[name]


class NotGuessed(Waiting):
    """The guess is still to be made; its text is what to do."""

    def _render_traceback_(self) -> list[str]:  # IPython: a sentence, wherever it is raised
        return [str(self)]


def guessed(name: str) -> None:
    """Wait for the guess `name`: before it is made, `when_solved` says so and the rest of its block does not run.

    Outside `when_solved` it says so and returns: a guess that is open never stops "Run All".
    """
    if not is_interactive():
        return
    if name in ledger().guesses:
        _begun[name] = QuietTogether()
        return
    question = _shown.get(name)
    which = f", “{question.question}”" if question else f", `{name}`"
    open_guess = NotGuessed(
        f"First your guess: answer the question above{which} (“{MINE}”, or “{SEE}”), then run this again."
    )
    if is_waiting_allowed():
        raise open_guess
    sentences(open_guess)


def reveal(name: str, truth: Answer, *, measured: bool = False) -> None:
    """Show the truth next to the guess `name`; the first truth shown goes into the ledger.

    `measured`: it depends on seconds that the experiment took. Those of a busy machine are shown, but not kept.
    """
    truth = _plain(truth)
    question, kept = _shown.get(name), ledger().guesses.get(name)
    mine = kept or Guess(name, None, unit=question.unit if question else "")
    is_first = bool(kept and kept.truth is None) and is_interactive()
    is_busy = is_first and measured and name in _begun and not _begun[name]
    if is_first and not is_busy:
        ledger().add(mine.seen(truth))
        if question:
            question.show()
    display_or_print(Revealed(mine.seen(truth), BUSY if is_busy else ""))


def _plain(truth: Any) -> Answer:
    """Return a number that JSON knows, of a tensor with one element, too; a choice as it is."""
    return truth if isinstance(truth, str) else float(truth)


def display_or_print(shown: "Revealed | Question") -> None:
    """Display it in a notebook, print it elsewhere."""
    if _shell() is None:
        print(shown)
        return
    from IPython.display import display

    display(shown)


def sentence(guess: Guess) -> str:
    """`You guessed 12 s, it was 31 s: 2.6 times too low.`"""
    truth = _with_unit(guess.truth, guess.unit)
    if guess.guess is None:
        return f"It was {truth}."
    said = f"You guessed {_with_unit(guess.guess, guess.unit)}, it was {truth}"
    if guess.is_choice:
        return f"You guessed {guess.guess}: {'right' if guess.guess == guess.truth else f'it was {guess.truth}'}."
    if guess.error is None:
        return f"{said}."
    factor = 10 ** abs(guess.error)
    if factor < 1.05:
        return f"{said}: that close."
    if factor < 2:
        return f"{said}: {abs(100 * (10**guess.error - 1)):.0f} % too {'low' if guess.error < 0 else 'high'}."
    return f"{said}: {_rounded(factor)} times too {'low' if guess.error < 0 else 'high'}."


def _with_unit(answer: Answer, unit: str) -> str:
    if answer is None or isinstance(answer, str):
        return answer or "nothing"
    return f"{_rounded(answer)}{' ' * bool(unit)}{unit}"


def _rounded(value: float) -> str:
    """Three digits, a whole number in full; powers of ten where written out it would be long."""
    if abs(value) < 1e7 and value == round(value):
        return f"{value:,.0f}"
    return number(value) if 1e-4 <= abs(value) < 1e7 or value == 0 else f"{value:.2g}"


class Revealed:
    """What came of a guess, and a note on it: sentences on a card, or as plain text."""

    def __init__(self, guess: Guess, note: str = ""):
        self.guess, self.note = guess, note

    def _repr_html_(self) -> str:
        from html import escape

        css = f"<style>{STYLE.read_text(encoding='utf-8')}</style>"
        return f'{css}<div class="hpcdl-revealed">{escape(repr(self))}</div>'

    def __repr__(self) -> str:
        return f"{sentence(self.guess)} {self.note}".rstrip()


class Question(anywidget.AnyWidget):
    """The control that asks. Its front end sends {"guess": text}, {"see": true} or {"again": true}."""

    _esm = Path(__file__).with_name("guessing.js")
    _css = STYLE
    question = traitlets.Unicode().tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    choices = traitlets.List(traitlets.Unicode()).tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)  # instead of the form; empty: the form
    seen = traitlets.Bool().tag(sync=True)  # the truth is known: too late to change
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(
        self, name: str, question: str, unit: str, choices: tuple[str, ...], truth: Callable[[], Answer] | None = None
    ):
        super().__init__(question=question, unit=unit, choices=list(choices))
        self.name, self.truth = name, truth
        self.on_msg(lambda _widget, message, _buffers: self.receive(message))
        self.show()

    def receive(self, message: dict) -> None:
        """Receive what the student did on the page."""
        if message.get("again"):
            self.said = ""
            return
        try:
            answer = None if message.get("see") else self.parsed(message["guess"])
        except ValueError as error:
            self.problem = str(error)
            return
        made = Guess(self.name, answer, unit=self.unit)
        ledger().add(made.seen(_plain(self.truth())) if self.truth else made)
        self.show()

    def parsed(self, text: str) -> Answer:
        """Return the answer that was given; ValueError says what is asked for."""
        if not self.choices:
            return positive(text.strip().removesuffix(self.unit))
        if text not in self.choices:
            raise ValueError("Choose one of them first.")
        return text

    def show(self) -> None:
        """Show what the ledger knows."""
        kept = ledger().answers.get(self.name)
        with self.hold_sync():
            self.said, self.seen, self.problem = _known(kept), bool(kept and kept.truth is not None), ""

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if not is_interactive():
            return {"text/plain": repr(self)}
        bundle = super()._repr_mimebundle_(**options)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**(data or {}), "text/plain": repr(self)}

    def __repr__(self) -> str:
        unit = f"({self.unit})" if self.unit else ""
        return f"Guess first: {self.question} {' / '.join(self.choices) or unit}".rstrip()


def _known(kept: Guess | None) -> str:
    """Return what replaces the form."""
    if kept is None:
        return ""
    if kept.truth is not None:
        return sentence(kept)
    made = "No guess." if kept.guess is None else f"Your guess: {_with_unit(kept.guess, kept.unit)}."
    return f"{made} Now run the cell below."


def positive(text: str) -> float:
    """Return a number above 0 as people write it: 12, 0.5, 1,200, 3e6; ValueError says so."""
    plain = re.sub(r"(?<=\d),(?=\d{3}(\D|$))", "", text.strip().replace(" ", ""))
    try:
        value = float(plain)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("A number above 0, please, such as 12, 0.5 or 3e6. A rough one will do.")
    return value
