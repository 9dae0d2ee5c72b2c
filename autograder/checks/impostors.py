"""Catch the impostors: a student gives inputs, and eight implementations of one function are judged by them.

The inputs are data of any size and type. Before anything runs, each part of each input is compared with a `InputField`,
which limits it; the implementations are ours. An input outside the specification exposes no impostor and is named; so
is one on which right implementations differ, because it would accuse an innocent one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autograder import show

from .equality import same
from .ladder import CheckFailure

MOST = 12  # accepted inputs
ROUNDING = 1e-6  # right implementations round differently; a larger difference is a mistake


# What an input may be


@dataclass(frozen=True)
class InputField:
    """A part of an input: its rule in words, and a test whether a value of any type keeps it."""

    rule: str
    keeps: Callable[[Any], bool]


def whole(low: int, high: int) -> InputField:
    return InputField(f"an int from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def number(low: float, high: float) -> InputField:
    return InputField(f"a number from {low:g} to {high:g}", lambda value: is_number(value, low, high))


def choice(*names: str) -> InputField:
    listed = ", ".join(map(repr, names))
    return InputField(f"one of {listed}, as text", lambda value: type(value) is str and value in names)


def many(part: InputField, most: int, *, least: int = 1) -> InputField:
    """Return a field for a list of `least` to `most` parts that each keep the rule of `part`."""
    rule = f"a list of {least} to {most} items, each {part.rule}"
    return InputField(rule, lambda value: is_list(value, least, most) and all(map(part.keeps, value)))


def is_number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high  # NaN is in no range


def is_list(value: Any, least: int, most: int) -> bool:
    return type(value) in (list, tuple) and least <= len(value) <= most


# Who is in the line


@dataclass(frozen=True)
class Suspect:
    """An implementation with a letter. A wrong one also says what it does, and which inputs show it."""

    name: str
    answers: Callable
    wrong: str = ""
    shows: str = ""


def anything(*case: Any) -> str:
    return ""


def call(implementation: Callable, *case: Any) -> Any:
    return implementation(*case)


@dataclass(frozen=True)
class LineUp:
    """Suspects, a right answer to compare with, and the specification of an input, part by part.

    `ask(implementation, *case)` returns an implementation's answer for one input; `outside(*case)` says which rule over
    several parts an input breaks, or nothing. Answers are equal if they differ by at most `tolerance`, relative or
    absolute.
    """

    name: str  # of the student's function
    truth: Callable
    suspects: tuple[Suspect, ...]
    fields: Mapping[str, InputField]
    ask: Callable = call
    outside: Callable[..., str] = anything
    tolerance: float = ROUNDING

    @property
    def impostors(self) -> list[Suspect]:
        return [suspect for suspect in self.suspects if suspect.wrong]

    @property
    def form(self) -> str:
        return f"({', '.join(self.fields)})"


# What came out


@dataclass(frozen=True)
class Behaviour:
    """What an implementation does instead of answering: `raises an IndexError`. Right ones never do."""

    verb: str


@dataclass
class Findings:
    """Inputs that do not count, and why; the exposed suspects, each with its evidence."""

    refused: list[str] = field(default_factory=list)
    unmasked: dict[str, str] = field(default_factory=dict)  # name of a suspect -> input, its answer and the right one


def examine(line_up: LineUp, given: Any) -> Findings:
    """Return what a student's inputs expose; raise CheckFailure unless they are a short list."""
    findings = Findings()
    for i, case in enumerate(cases(line_up, given), start=1):
        shown = f"Input {i}, {show.show(case, 90)},"
        rule = broken_rule(line_up, case)
        if rule:
            findings.refused.append(f"{shown} is outside the specification: {rule}.")
        else:
            try_input(line_up, case, shown, findings)
    return findings


def cases(line_up: LineUp, given: Any) -> list:
    wanted = f"expected a list of inputs, each a tuple {line_up.form}"
    if type(given) not in (list, tuple):
        raise CheckFailure(f"{line_up.name}() is {show.an(show.type_name(given))}, {wanted}.", show.show(given), wanted)
    if not given:
        raise CheckFailure(f"{line_up.name}() gives no input, {wanted}. Without an input you unmask no program.")
    if not broken_rule(line_up, given) and all(broken_rule(line_up, case) for case in given):
        shown = show.show(tuple(given))
        raise CheckFailure(
            f"{line_up.name}() is one input, expected a list of inputs. Put brackets around it: return [{shown}].",
            got=shown,
            expected=f"[{shown}]",
        )
    if len(given) > MOST:
        raise CheckFailure(
            f"{line_up.name}() gives {len(given):,} inputs, but at most {MOST} are allowed. Leave out inputs that "
            "unmask no further impostor."
        )
    return list(given)


def broken_rule(line_up: LineUp, case: Any) -> str:
    """Return the rule of the specification that an input breaks; empty if it keeps all."""
    if type(case) not in (list, tuple) or len(case) != len(line_up.fields):
        return f"an input is a tuple {line_up.form} of {len(line_up.fields)} parts"
    for (name, part), value in zip(line_up.fields.items(), case, strict=True):
        if not part.keeps(value):
            return f"{name} is {show.show(value, 40)}, expected {part.rule}"
    return line_up.outside(*case)


def try_input(line_up: LineUp, case: Any, shown: str, findings: Findings) -> None:
    """Give one input to every suspect. Right ones answer first: if they differ, the input does not count."""
    right = answer(line_up, line_up.truth, case)
    differing = dict(differing_answers(line_up, case, right))
    innocent = [suspect.name for suspect in line_up.suspects if suspect.name in differing and not suspect.wrong]
    if innocent:
        accused = innocent[0]
        findings.refused.append(
            f"{shown} accuses the innocent: {accused} is right, and answers {show.show(differing[accused], 40)} where "
            f"another right program answers {show.show(right, 40)}. The specification does not settle so many digits."
        )
        return
    for name, got in differing.items():
        findings.unmasked.setdefault(name, f"asked {show.show(case, 70)}, it {evidence(got, right, line_up.tolerance)}")


def differing_answers(line_up: LineUp, case: Any, right: Any) -> Iterator[tuple[str, Any]]:
    """Return the suspects with a wrong answer, and their answers."""
    for suspect in line_up.suspects:
        got = answer(line_up, suspect.answers, case)
        if not same_up_to(got, right, line_up.tolerance):
            yield suspect.name, got


def answer(line_up: LineUp, implementation: Callable, case: Any) -> Any:
    try:
        return line_up.ask(implementation, *case)
    except Exception as error:  # an impostor's exception is its answer
        return Behaviour(f"raises {show.an(type(error.__cause__ or error).__name__)}")


def evidence(got: Any, right: Any, tolerance: float, where: str = "") -> str:
    """Describe the first error in an answer: `answers 3. at [0][2], expected 4.`."""
    if type(got) is Behaviour:
        return got.verb
    if type(got) in (list, tuple) and type(got) is type(right) and len(got) == len(right):
        i = next(i for i, (a, b) in enumerate(zip(got, right, strict=True)) if not same_up_to(a, b, tolerance))
        return evidence(got[i], right[i], tolerance, f"{where}[{i}]")
    return f"answers {show.show(got, 70)}{where and f' at {where}'}, expected {show.show(right, 70)}"


def same_up_to(a: Any, b: Any, tolerance: float) -> bool:
    """Return whether values are equal up to rounding, also in lists and tuples."""
    if type(a) in (list, tuple) and type(a) is type(b):
        return len(a) == len(b) and all(same_up_to(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if {type(a), type(b)} <= {int, float}:
        return a == b or abs(a - b) <= tolerance * max(1.0, abs(b)) or (a != a and b != b)
    return same(a, b)


# Verdicts


def spares_the_right(line_up: LineUp, given: Any) -> None:
    """Check that every input keeps the specification, that right implementations agree on it, and that one of the
    inputs unmasks an impostor."""
    findings = examine(line_up, given)
    refused = findings.refused
    if refused:
        others = f" The same holds for {len(refused) - 1} more of your inputs." * (len(refused) > 1)
        raise CheckFailure(refused[0], why=f"This input does not count.{others}")
    if not findings.unmasked:
        raise CheckFailure("Your inputs keep to the rules, but every program gives the right answer for all of them.")


def unmasks_the_wrong(line_up: LineUp, given: Any) -> None:
    """Check that every impostor answers some input wrongly; each that does earns its share of the points."""
    unmasked, impostors = examine(line_up, given).unmasked, line_up.impostors
    large = [suspect for suspect in impostors if suspect.name not in unmasked]
    if not large:
        return
    caught = [f"{s.name} {s.wrong}: {unmasked[s.name]}" for s in impostors if s.name in unmasked]
    raise CheckFailure(
        f"Your inputs unmask {len(caught)} of {len(impostors)} impostors. The others give the right answer for "
        "all your inputs.",
        got="\n".join(caught) or "no program is unmasked",
        why=f"Hint: try {large[0].shows}.",
        share=len(caught) / len(impostors),
    )
