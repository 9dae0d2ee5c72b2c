"""A lab's report, a page to hand in or to discuss: guesses and results, points, and a decision.

The decision is an engineer's conclusion from an experiment. It goes into a file next to the notebook, under three
headings (`PROMPTS`); the page shows what is still missing, and the rubric.
"""

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import jinja2
import nbformat

from hpcdl import guesses, labs
from hpcdl.files import write_whole
from hpcdl.guesses import Guess, Ledger
from hpcdl.points import Checked, PointsRecord, file_in
from hpcdl.progress import by_notebook, labs_in

PROMPTS = (
    "Which choice does this lab's experiment ask for, and what would you choose?",
    "Which number that you saw decides it?",
    "When would you choose differently?",
)
RUBRIC = (
    "Is the choice named together with its alternative?",
    "Does a number from an experiment support it, with its unit?",
    "Is there a condition under which the answer changes, and a reason why?",
)
MARKS = "2 points: yes; 1: in part; 0: no"


class ReportError(ValueError):
    """There is no lab to report on."""


@dataclass(frozen=True)
class Report:
    """A student's work on a lab: its `title`, exercises, guesses and the answers to `PROMPTS` ("" if missing)."""

    title: str
    name: str
    exercises: dict[str, Checked | None]
    guesses: dict[str, tuple[str, Guess | None]]  # by name, the question's words and the answer
    decision: tuple[str, ...]

    @property
    def points(self) -> float:
        """Return the sum of the points of each exercise's last check."""
        return sum(checked.points or 0 for checked in self.exercises.values() if checked)

    @property
    def missing(self) -> list[str]:
        """Return a sentence for each part that the report still lacks."""
        unchecked = [name.partition(".")[2] for name, checked in self.exercises.items() if checked is None]
        unanswered = sum(guess is None for _, guess in self.guesses.values())
        unseen = sum(guess is not None and guess.truth is None for _, guess in self.guesses.values())
        said = [f"not checked yet: {', '.join(unchecked)}"] if unchecked else []
        said += [f"guesses not made: {unanswered}"] if unanswered else []
        said += [f"experiments not run after a guess: {unseen}"] if unseen else []
        return said + [f"not answered: {q}" for q, text in zip(PROMPTS, self.decision, strict=True) if not text]


def report(notebook: Path, name: str = "") -> Report:
    """Collect the report on a lab from the files next to its notebook; `name` is shown if given.

    Raises ReportError if the file is not one of the folder's labs.
    """
    found = by_notebook(notebook.parent)
    if notebook not in found:
        raise ReportError(f"{notebook} is not a lab; the labs there are {', '.join(path.stem for path in found)}")
    record = PointsRecord(file_in(notebook.parent))
    made = Ledger(guesses.file_in(notebook.parent)).guesses
    return Report(
        title=_title(notebook),
        name=name,
        exercises={exercise: record.last(exercise) for exercise in found[notebook]},
        guesses={key: (text, made.get(key)) for key, (text, _) in guesses.questions([notebook]).items()},
        decision=_decision(notebook),
    )


def _title(notebook: Path) -> str:
    """Return the first heading of a notebook."""
    cells = nbformat.read(notebook, as_version=4).cells
    headings = (re.search(r"^# (.+)", cell.source, re.MULTILINE) for cell in cells if cell.cell_type == "markdown")
    return next((heading[1] for heading in headings if heading), notebook.stem)


def decision_file(notebook: Path) -> Path:
    """Return the file for the decision on a lab, next to the notebook."""
    return notebook.with_suffix(".decision.md")


def prepare(notebook: Path) -> Path | None:
    """Write the empty form for the decision unless it exists; return its path if it is new."""
    path = decision_file(notebook)
    if os.path.lexists(path):
        return None
    write_whole(path, "".join(f"## {prompt}\n\n\n" for prompt in PROMPTS))
    return path


def _decision(notebook: Path) -> tuple[str, ...]:
    path = decision_file(notebook)
    return decision(path.read_text(encoding="utf-8", errors="replace") if path.is_file() else "")


def decision(text: str) -> tuple[str, ...]:
    """Parse a decision file's text; return the answer to each of `PROMPTS`, "" where it is missing."""
    parts = dict(re.findall(r"^## *(.+?) *\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    return tuple(parts.get(prompt, "").strip() for prompt in PROMPTS)


def page(found: Report) -> str:
    """Return the report as HTML without scripts; the student's text is escaped."""
    rows = [(text, guess, _missed(guess)) for text, guess in found.guesses.values()]
    return _TEMPLATE.render(
        report=found, rows=rows, prompts=PROMPTS, rubric=RUBRIC, marks=MARKS, day=f"{datetime.now(UTC):%d %B %Y}"
    )


def _missed(guess: Guess | None) -> str:
    """Return how far a guess is from the truth, in words."""
    if guess is None or guess.truth is None or guess.guess is None:
        return ""
    if guess.is_choice:
        return "right" if guess.guess == guess.truth else "wrong"
    return (
        "" if guess.error is None else f"{10 ** abs(guess.error):.2g} times too {'high' if guess.error > 0 else 'low'}"
    )


def find(lab: str, folder: Path | None) -> Path:
    """Return the notebook of a lab given by number, slug or file; LabsError lists the labs that exist."""
    given = Path(lab)
    return given if given.suffix == ".ipynb" and given.is_file() else labs.find(lab, labs_in(folder))


_TEMPLATE = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True).from_string(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{ report.title }}: a report</title>
<style>
:root { color-scheme: light dark; }
body { background: Canvas; color: CanvasText; font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto;
  padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .25rem .6rem .25rem 0;
  border-bottom: 1px solid color-mix(in srgb, currentColor 25%, transparent); vertical-align: top; }
.missing { border-left: 4px solid #d0552f; padding: .3rem .8rem; }
.answer { white-space: pre-wrap; } section { break-inside: avoid; }
</style>
</head>
<body>
<main>
<h1>{{ report.title }}</h1>
<p>{{ report.name or "Name: ______________________" }} · {{ day }} · {{ "%g" % report.points }} points by the checks</p>
{% if report.missing %}
<div class="missing"><b>Missing</b><ul>
{% for sentence in report.missing %}
<li>{{ sentence }}</li>
{% endfor %}
</ul></div>
{% endif %}
<section><h2>Decision</h2>
{% for prompt in prompts %}
<h3>{{ prompt }}</h3>
<p class="answer">{{ report.decision[loop.index0] or "(missing)" }}</p>
{% endfor %}
</section>
{% if rows %}
<section><h2>Guesses</h2>
<table><tr><th>question</th><th>guess</th><th>what came out</th><th>how far off</th></tr>
{% for text, guess, missed in rows %}
<tr><td>{{ text }}</td>
{% if guess is none %}
<td>(missing)</td><td></td><td></td></tr>
{% else %}
<td>{{ "would rather see" if guess.guess is none else guess.guess if guess.is_choice else "%.3g" % guess.guess }}</td>
<td>{{ "(not run)" if guess.truth is none else guess.truth if guess.truth is string else "%.3g" % guess.truth }}
{{ guess.unit }}</td><td>{{ missed }}</td></tr>
{% endif %}
{% endfor %}
</table></section>
{% endif %}
<section><h2>Exercises</h2>
<table><tr><th>exercise</th><th>points</th><th>last checked</th></tr>
{% for name, checked in report.exercises.items() %}
<tr><td>{{ name.partition(".")[2] }}</td>
{% if checked is none %}
<td>(missing)</td><td></td></tr>
{% else %}
<td>{{ "%g" % (checked.points or 0) }} of {{ "%g" % checked.most }}</td><td>{{ checked.when[:10] }}</td></tr>
{% endif %}
{% endfor %}
</table></section>
<section><h2>How it is read</h2>
<p>{{ marks }}.</p>
<table>
{% for question in rubric %}
<tr><td>{{ question }}</td><td>&nbsp;&nbsp;&nbsp;/ 2</td></tr>
{% endfor %}
</table></section>
</main>
</body>
</html>
"""
)
