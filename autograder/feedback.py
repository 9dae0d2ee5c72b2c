"""A student's feedback: HTML for the notebook, in the colours of its theme, and the same as plain text."""

import re
from collections import Counter
from dataclasses import replace
from html import escape
from typing import Any

from .results import CheckResult, ExerciseResult, Status
from .show import OR

MARK = {"passed": "✓", "failed": "✗", "skipped": "–", "not_done": "○"}
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
LABEL = {"passed": "passed", "failed": "failed", "skipped": "skipped", "not_done": "not done yet"}

# JupyterLab's theme variables, with fallbacks for other front ends that work on light and dark. Colour is never the
# only sign: each verdict has a mark and a word, and text keeps the theme's text colour.
STYLE = """
.hpcdl-check { font-family: var(--jp-content-font-family, system-ui, sans-serif); font-size: 14px; line-height: 1.5;
  color: var(--jp-content-font-color1, inherit); max-width: 56rem; padding: 8px 14px; margin: 4px 0;
  border-left: 4px solid var(--hpcdl-tone); background: color-mix(in srgb, var(--hpcdl-tone) 8%, transparent); }
.hpcdl-passed { --hpcdl-tone: #0f8a5f; } .hpcdl-failed { --hpcdl-tone: #d0552f; }
.hpcdl-not_done, .hpcdl-skipped { --hpcdl-tone: #6b7d94; }
.hpcdl-check .hpcdl-head { display: flex; flex-wrap: wrap; gap: 2px 16px; align-items: baseline; }
.hpcdl-check .hpcdl-head b { font-size: 15px; }
.hpcdl-check .hpcdl-head .hpcdl-total { margin-left: auto; opacity: .85; }
.hpcdl-check .hpcdl-mark { display: inline-block; width: 1.3em; font-weight: 700; }
.hpcdl-check .hpcdl-one { margin: 6px 0 0; }
.hpcdl-check div.hpcdl-one { padding-left: 14px; } .hpcdl-check .hpcdl-points { opacity: .8; white-space: nowrap; }
.hpcdl-check summary { cursor: pointer; } .hpcdl-check summary::marker { color: var(--hpcdl-tone); }
.hpcdl-check .hpcdl-body { margin: 4px 0 8px 1.3em; }
.hpcdl-check .hpcdl-body p { margin: 4px 0; } .hpcdl-check .hpcdl-mistake { font-weight: 600; }
.hpcdl-check .hpcdl-facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 3px 14px;
  margin: 8px 0 4px; } .hpcdl-check .hpcdl-label { opacity: .8; }
.hpcdl-check .hpcdl-value { font-family: var(--jp-code-font-family, ui-monospace, monospace); font-size: 13px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.hpcdl-check .hpcdl-changed { display: none; font-weight: 600; margin: 6px 0 0; }
.jp-CodeCell.jp-mod-dirty + .jp-CodeCell .hpcdl-changed { display: block; }
.hpcdl-check .hpcdl-printed { margin-top: 8px; }
.hpcdl-check pre { margin: 2px 0; max-height: 12em; overflow: auto; color: inherit; background: none; font-size: 13px; }
"""


# Shown while JupyterLab marks the cell above as changed since its run: a check sees the kernel, not the page.
CHANGED = '<p class="hpcdl-changed">The cell above has changed since it ran: run it, then check again.</p>'


class NotChecked:
    """Why an exercise was not checked: the kernel does not hold the notebook's code."""

    def __init__(self, name: str, reason: str, total: str = ""):
        self.name, self.reason, self.total = name, reason, total

    def about(self) -> dict[str, Any]:
        """Return the output's metadata: an exercise that was not checked has no points."""
        return {"exercise": self.name, "points": 0.0, "verdict": "not checked"}

    def _repr_html_(self) -> str:
        return _card("not_done", f"{self.name}: not checked", self.total, CHANGED + f"<div>{inline(self.reason)}</div>")

    def __repr__(self) -> str:
        return "\n".join([_first_line("not_done", f"{self.name}: not checked", self.total), f"  {self.reason}"])


class Feedback:
    """One exercise's feedback, as a notebook displays it. `total` is the line about the whole lab."""

    def __init__(self, result: ExerciseResult, total: str = "", printed: str = "", note: str = ""):
        self.result, self.total, self.printed, self.note = result, total, printed, note

    def about(self) -> dict[str, Any]:
        """Return the output's metadata, for `hpcdl submit`."""
        verdict = headline(self.result).partition(": ")[2]
        return {"exercise": self.result.name, "points": self.result.points, "verdict": verdict}

    def _repr_html_(self) -> str:
        return html(self.result, self.total, self.printed, self.note, live=True)

    def __repr__(self) -> str:
        return text(self.result, self.total, self.printed, self.note)


def headline(result: ExerciseResult) -> str:
    """`mse_grad: 5 / 10 points`, or that it is not done yet."""
    if result.status == "not_done":
        return f"{result.name}: not done yet"
    return f"{result.name}: {result.points:g} / {result.max_points:g} points"


def points(check: CheckResult) -> str:
    """`(2 / 5)`, or a remark that the check gives no points."""
    return f"({check.points:g} / {check.max_points:g})" if check.max_points else "(no points)"


def facts(check: CheckResult) -> list[tuple[str, str]]:
    """Return what to show with a failed check's sentence, as (label, text)."""
    location = f"line {check.line} of {check.function}: {check.source}" if check.line and check.source else ""
    if check.line and not check.source:
        location = f"line {check.line} of {check.function}"
    if location and check.via:
        location = f"{check.via}\n{location}"
    shown = [("call", check.call), ("got", check.got), ("expected", check.expected), ("where", location)]
    return [(label, value) for label, value in shown if value]


def sentences(check: CheckResult) -> list[str]:
    """Return a failed check's sentences in reading order: the named mistake first."""
    return [sentence for sentence in (check.mistake, check.message, check.where, check.why) if sentence]


def told(result: ExerciseResult) -> list[tuple[CheckResult, list[str]]]:
    """Return the checks with their sentences; a cause that an earlier check has told is named, not told again."""
    first: dict[str, CheckResult] = {}
    return [
        (check, sentences(check) if check.status != "failed" else _once(check, first)) for check in narrowed(result)
    ]


def narrowed(result: ExerciseResult) -> list[CheckResult]:
    """Return the checks; where an input cannot tell two mistakes apart, they name the one that another check names."""
    named = [{without_numbers(said): said for said in check.mistake.split(OR)} for check in result.checks]
    times = Counter(said for mistakes in named for said in mistakes)
    return [
        replace(check, mistake=OR.join([mistakes[said] for said in mistakes if times[said] > 1] or mistakes.values()))
        for check, mistakes in zip(result.checks, named, strict=True)
    ]


def causes(result: ExerciseResult) -> list[str]:
    """Return the mistakes that the checks name, without numbers, each once."""
    return list(dict.fromkeys(filter(None, (without_numbers(check.mistake) for check in narrowed(result)))))


def without_numbers(sentence: str) -> str:
    """Return the words of a sentence: each check draws its own numbers."""
    return NUMBER.sub("", sentence)


def _once(check: CheckResult, first: dict[str, CheckResult]) -> list[str]:
    """Return a failed check's sentences without those of the `first` check with the same cause."""
    cause = without_numbers(check.mistake) or ("" if check.hidden else check.message)
    earlier = first.setdefault(cause, check) if cause else check
    if earlier is check:
        return sentences(check)
    before = sentences(earlier)
    return [
        f"The cause is the same as in “{earlier.title}”.",
        *(s for s in sentences(check) if s not in (check.mistake, *before)),
    ]


# Plain text


def text(result: ExerciseResult, total: str = "", printed: str = "", note: str = "") -> str:
    """Return the feedback as plain text."""
    lines = [_first_line(result.status, headline(result), total)]
    if result.status == "not_done":
        first = next(check for check in result.checks if check.status == "not_done")
        return "\n".join([*lines, f"  {first.message}"])
    if result.status != "passed":
        for check, said in told(result):
            lines += _text_check(check, said)
    lines += [f"  {said}" for said in (result.note, note) if said]
    lines += ["  Your code printed:", *("    " + line for line in printed.splitlines())] if printed else []
    return "\n".join(lines)


def _first_line(status: Status, title: str, total: str) -> str:
    return f"{MARK[status]} {title}" + (f"    {total}" if total else "")


def _text_check(check: CheckResult, said: list[str]) -> list[str]:
    lines = [f"  {MARK[check.status]} {check.title} {points(check)}"]
    if check.passed:
        return lines
    lines += [f"      {sentence}" for sentence in said]
    return lines + [f"      {label:<9}{indented(value, 15)}" for label, value in facts(check)]


def indented(value: str, by: int) -> str:
    """Indent all lines of a text after the first."""
    return value.replace("\n", "\n" + " " * by)


# HTML


def html(result: ExerciseResult, total: str = "", printed: str = "", note: str = "", *, live: bool = False) -> str:
    """Return the feedback as HTML without scripts, `live` in a notebook; everything from the student is escaped."""
    body = _html_body(result)
    body += "".join(f"<p>{inline(said)}</p>" for said in (result.note, note) if said)
    if printed:
        body += '<details class="hpcdl-printed"><summary>Your code printed</summary>'
        body += f"<pre>{escape(printed)}</pre></details>"
    return _card(result.status, headline(result), total, live * CHANGED + body)


def _card(status: Status, title: str, total: str, body: str) -> str:
    head = f'<b><span class="hpcdl-mark">{MARK[status]}</span>{escape(title)}</b>'
    if total:
        head += f'<span class="hpcdl-total">{escape(total)}</span>'
    inside = f'<div class="hpcdl-head">{head}</div>{body}'
    return f'<style>{STYLE}</style><div class="hpcdl-check hpcdl-{status}">{inside}</div>'


def _html_body(result: ExerciseResult) -> str:
    if result.status == "passed":
        return ""
    if result.status == "not_done":
        first = next(check for check in result.checks if check.status == "not_done")
        return f"<div>{inline(first.message)}</div>"
    shown = told(result)
    first_failure = next((check for check, _ in shown if check.status in ("failed", "not_done")), None)
    return "".join(_html_check(check, said, opened=check is first_failure) for check, said in shown)


def _html_check(check: CheckResult, said: list[str], opened: bool) -> str:
    mark = f'<span class="hpcdl-mark" title="{LABEL[check.status]}">{MARK[check.status]}</span>'
    line = f'{mark}{inline(check.title)} <span class="hpcdl-points">{points(check)}</span>'
    if check.passed:
        return f'<div class="hpcdl-one hpcdl-passed">{line}</div>'
    body = "".join(
        f'<p class="hpcdl-mistake">{inline(s)}</p>' if s is check.mistake else f"<p>{inline(s)}</p>" for s in said
    )
    body += _html_facts(facts(check))
    state = " open" if opened else ""
    return (
        f'<details class="hpcdl-one hpcdl-{check.status}"{state}><summary>{line}</summary>'
        f'<div class="hpcdl-body">{body}</div></details>'
    )


def _html_facts(rows: list[tuple[str, str]]) -> str:
    cell = '<span class="hpcdl-{}">{}</span>'.format
    cells = "".join(cell("label", label) + cell("value", escape(value)) for label, value in rows)
    return f'<div class="hpcdl-facts">{cells}</div>' if rows else ""


def inline(sentence: str) -> str:
    """Return escaped text with `code` between backticks."""
    parts = escape(sentence).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
