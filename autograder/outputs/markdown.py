"""A student's feedback as Markdown: for an issue, a mail or a repository. What students wrote stays text."""

import re
from pathlib import Path

from autograder import feedback
from autograder.results import CheckResult, ExerciseResult, LabResult

from .html import write_pages
from .load import for_student

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&:@$])")


def page(result: LabResult) -> str:
    """Return one student's feedback, as they may see it."""
    shown = for_student(result)
    lines = [f"# {_text(shown.lab or 'Not graded')} · {_text(shown.student)}", ""]
    if shown.status != "graded":
        return "\n".join([*lines, f"It could not be graded: {_text(shown.message)}.", ""])
    lines += [f"**{shown.score:g} / {shown.max_score:g}** points", ""]
    lines += [f"- {each.points:+g} points: {_text(each.reason)}" for each in shown.adjustments]
    lines += [""] if shown.adjustments else []
    for exercise in shown.exercises:
        lines += _exercise(exercise)
    notes = [note for note in (shown.message, *shown.notes) if note]
    lines += ["## Notes", "", *(f"- {_text(note)}" for note in notes), ""] if notes else []
    return "\n".join(lines)


def write(found: list[LabResult], out: Path) -> list[Path]:
    """Write `<student>/<lab>.md` for each result under `out`; return the paths."""
    return write_pages(found, out, page, ".md")


def _exercise(exercise: ExerciseResult) -> list[str]:
    lines = [f"## {feedback.MARK[exercise.status]} {_text(feedback.headline(exercise))}", ""]
    lines += [_inline(exercise.note), ""] if exercise.note else []
    for check, said in feedback.told(exercise):
        lines += _check(check, said)
    return [*lines, ""]


def _check(check: CheckResult, said: list[str]) -> list[str]:
    lines = [f"- {feedback.MARK[check.status]} {_inline(check.title)} {feedback.points(check)}"]
    if check.passed:
        return lines
    for sentence in said:
        lines += ["", f"  {_inline(sentence)}"]
    facts = [f"{label}: {value}" for label, value in feedback.facts(check)]
    return [*lines, "", *_fenced("\n".join(facts)), ""] if facts else [*lines, ""]


def _fenced(text: str) -> list[str]:
    """Return a code block that the text cannot close: its fence is longer than any run of backticks in it."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`+", text))])
    return [f"  {line}" for line in (fence, *text.splitlines(), fence)]


def _text(value: str) -> str:
    """Return one line with all characters of Markdown and HTML escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(value.split()))


def _inline(sentence: str) -> str:
    """Return one such line, with text between backticks as code."""
    parts = " ".join(sentence.split()).split("`")
    if len(parts) % 2 == 0:
        return _text(sentence)
    return "".join(f"`{part}`" if i % 2 and part else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))
