"""Write a page for teachers about each lab, from its exercises, its wrong answers and `teaching/lessons.toml`.

`teaching/plans.toml` has plans for a whole course; their minutes come from the labs.
"""

import ast
import functools
import inspect
import json
import re
import tomllib
from pathlib import Path

from course import Course, courses, exercises_table, linked

from autograder.authoring import Exercise, Lab, WrongAnswer
from autograder.grading import selfcheck

ROOT = Path(__file__).resolve().parent.parent
LESSONS = ROOT / "docs" / "teaching" / "lessons.toml"
PLANS = ROOT / "docs" / "teaching" / "plans.toml"
MISTAKES = 3  # of each exercise
LINE_UP = "unmask_"  # exercises in which students find other people's mistakes
MARKS = re.compile(r"([*_\[<$|])(?=[^`]*(?:`[^`]*`[^`]*)*$)")  # outside of `code`
SECTIONS = re.compile(r"^(\| [A-Z] \|[^|]*\|)(.*)$", re.MULTILINE)
DEMO = "Each block is a cell: run them in order in an empty notebook next to the labs. You need no solutions."


def write(folder: Path) -> None:
    """Write a page for each lab into `folder`, and remove pages of labs that are gone."""
    folder.mkdir(exist_ok=True)
    lessons = tomllib.loads(LESSONS.read_text(encoding="utf-8"))
    pages = {f"{each.slug}.md": page(each, lessons.get(each.slug, {})) for each in courses()}
    for old in set(folder.glob("*.md")) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def page(course: Course, lesson: dict) -> str:
    """Return the page of one lab, as Markdown."""
    lab = course.lab
    parts = [
        f"# Lab {course.number} · {course.title}",
        f"[What students see](../../labs/{lab.slug}.md) · slides for your lecture: `hpcdl slides {course.number}`",
        f"## Goals\n\nAfter this lab students can\n\n{course.goals}" if course.goals else "",
        "## Exercises\n\n" + exercises_table(lab),
        "## A session of 50 minutes\n\n" + _rows("| minutes | what happens |", lesson.get("session", ())),
        _demo(lab, lesson.get("demo", ())),
        _list("Questions to ask", lesson.get("ask", ())),
        "## Usual mistakes\n\nThe checks name these mistakes; the words in italics are what students read.\n\n"
        + mistakes(lab),
        _list("Questions to discuss", lesson.get("discuss", ())),
        *(_exam(number, exam) for number, exam in enumerate(lesson.get("exam", ()), 1)),
        f"## With less time\n\n{lesson['skip']}" if "skip" in lesson else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def mistakes(lab: Lab) -> str:
    """Return what students get wrong in each exercise, as the bank has it, with the sentence that the check tells them.

    Mistakes without such a sentence are shown only if an exercise has no others.
    """
    bank = selfcheck.bank(lab.slug)

    def of(exercise: Exercise) -> list[str]:
        told = sentences(exercise)
        wrong = [each for each in bank if each.exercise == exercise.id]
        named = {_message(each, told): each for each in reversed(wrong)}  # the first of those with one sentence
        shown = [each for each in wrong if each in named.values() and _message(each, told)] or wrong
        return list(dict.fromkeys(_mistake(each, told) for each in shown))[:MISTAKES]

    exercises = [each for each in lab.exercises.values() if not each.name.startswith(LINE_UP) and of(each)]
    return "\n".join(f"- `{each.name}`\n" + "\n".join(of(each)) for each in exercises)


def sentences(exercise: Exercise) -> set[str]:
    """Return the sentences that an exercise's checks may say, from its own file and its lab's common files."""
    lab = exercise.lab
    files = {e.name: {inspect.getfile(check.function) for check in e.checks.values()} for e in lab.exercises.values()}
    folder = {str(path) for path in (ROOT / "autograder" / "exercises" / lab.slug).glob("*.py")}
    return set().union(*map(_sentences, folder - set().union(*files.values()) | files[exercise.name]))


@functools.cache
def _sentences(path: str) -> set[str]:
    """Return a file's sentences; titles of checks, which are docstrings, name no mistake."""
    nodes = list(ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))))
    parts = [each for node in nodes if isinstance(node, ast.JoinedStr) for each in node.values]
    left_out = {id(node.value) for node in nodes if isinstance(node, ast.Expr)} | set(map(id, parts))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in left_out}
    return {text for text in texts if isinstance(text, str) and " " in text and text.endswith(".")}


def _message(wrong: WrongAnswer, told: set[str]) -> str | None:
    """Return the one sentence that the bank means; of several, what they begin with; None if they begin differently."""
    found = [text for text in told if wrong.says in text]
    if len(found) > 1:
        return f"{wrong.says} …" if all(text.startswith(wrong.says) for text in found) else None
    return found[0] if found else None


def _mistake(wrong: WrongAnswer, told: list[str]) -> str:
    said = _message(wrong, told)
    return f"  - {escaped(wrong.mistake)}" + (f": *{escaped(said)}*" if said else "")


def escaped(text: str) -> str:
    """Return plain text as Markdown: code in backticks stays code, other marks mean themselves."""
    return MARKS.sub(r"\\\1", " ".join(text.split()))


def linked_lectures(text: str) -> str:
    """Return the page with the lab numbers in its table of lectures as links to the labs' pages."""
    return SECTIONS.sub(lambda row: row[1] + linked(row[2], "../labs/"), text)


def plans() -> str:
    """Return a table of all plans: for each week its labs, and their minutes."""
    found = [each["weeks"] for each in tomllib.loads(PLANS.read_text(encoding="utf-8"))["plan"]]
    by_slug = {course.slug: course for course in courses()}
    head = "| week | " + " | ".join(f"{len(weeks)} weeks | minutes" for weeks in found) + " |"
    rows = []
    for week in range(max(map(len, found))):
        cells = [_week(weeks[week], by_slug) if week < len(weeks) else ("", "") for weeks in found]
        rows.append((week + 1, *(cell for pair in cells for cell in pair)))
    sums = (sum(minutes(week, by_slug) for week in weeks) for weeks in found)
    return _rows(head, [*rows, ("all", *(cell for each in sums for cell in ("", f"{each} ({each / 60:.0f} hours)")))])


def _week(week: list, by_slug: dict[str, Course]) -> tuple[str, int]:
    """Return the links to a week's labs, and their minutes; of a choice, the longer lab's."""
    links = [" or ".join(f"[{by_slug[s].number}](labs/{s}.md)" for s in choices(each)) for each in week]
    return ", ".join(links), minutes(week, by_slug)


def minutes(week: list, by_slug: dict[str, Course]) -> int:
    """Return the minutes of a week's labs; of a choice, the longer lab's."""
    return sum(max(by_slug[slug].minutes for slug in choices(each)) for each in week)


def choices(entry: str | list[str]) -> list[str]:
    """Return the labs in a plan's entry: one lab, or several from which the teacher chooses."""
    return [entry] if isinstance(entry, str) else entry


def _rows(head: str, rows) -> str:
    line = "|" + " --- |" * (head.count("|") - 1)
    return "\n".join([head, line, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]) if rows else ""


def _list(title: str, items) -> str:
    return f"## {title}\n\n" + "\n".join(f"- {item}" for item in items) if items else ""


def _demo(lab: Lab, steps) -> str:
    """Return the demonstration: what to say, and the cell to run."""
    cells = "\n\n".join(f"{said}\n\n```python\n{code}\n```" for said, code in (demo_step(lab, step) for step in steps))
    return f"## A demonstration of ten minutes\n\n{DEMO}\n\n{cells}" if steps else ""


def demo_step(lab: Lab, step: dict) -> tuple[str, str]:
    """Return what to say, as Markdown, and the cell to run: a picture, a usual mistake and its check, or `run`."""
    if "picture" in step:
        return step["say"], f"from hpcdl.widgets.pictures import {step['picture']}\n\n{step['picture']}.explorable()"
    if "mistake" in step:
        wrong = wrong_answer(lab, step)
        said = f"A usual mistake, {escaped(wrong.mistake)}. Ask what is wrong before you run the check. "
        code = f'{_imports(lab, wrong.source)}\n\n\n{wrong.source.strip()}\n\n\ncheck("{wrong.exercise}")'
        return f"{said}It says: *{escaped(message(lab, wrong))}*", code
    return step["say"], step["run"].strip()


def message(lab: Lab, wrong: WrongAnswer) -> str:
    """Return the sentence that a check tells about a wrong answer."""
    return _message(wrong, sentences(lab.exercises[wrong.exercise.partition(".")[2]])) or wrong.says


def wrong_answer(lab: Lab, step: dict) -> WrongAnswer:
    """Return the wrong answer of the bank that a step names."""
    wanted = (f"{lab.slug}.{step['exercise']}", step["mistake"])
    return next(each for each in selfcheck.bank(lab.slug) if (each.exercise, each.mistake) == wanted)


def _imports(lab: Lab, source: str) -> str:
    """Return the lines of the lab's first cell that import what a wrong answer and its check use."""
    path = next((ROOT / "labs").glob(f"*_{lab.slug}.ipynb"))
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "".join(next(cell["source"] for cell in cells if cell["cell_type"] == "code"))
    used = set(re.findall(r"\w+", source)) | {"check"}
    found = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n".join(ast.unparse(node) for node in found if {alias.asname or alias.name for alias in node.names} & used)


def _exam(number: int, exam: dict) -> str:
    rubric = "\n".join(f"- {line}" for line in exam["rubric"])
    return f"## Exam question {number}\n\n{exam['question']}\n\nRubric:\n\n{rubric}"
