"""Write a page for teachers about each lab, from its exercises, its wrong answers and `teaching/lessons.toml`."""

import json
import re
import tomllib
from pathlib import Path

from autograder import exercises
from autograder.authoring import Exercise, Lab
from autograder.grading import selfcheck

ROOT = Path(__file__).resolve().parent.parent
LESSONS = ROOT / "docs" / "teaching" / "lessons.toml"
GOALS = re.compile(r"\*\*You will be able to\*\*\n+((?:- .*\n(?:  .*\n)*)+)")
MISTAKES = 4  # of each exercise


def write(folder: Path) -> None:
    """Write a page for each lab into `folder`, and remove pages of labs that are gone."""
    folder.mkdir(exist_ok=True)
    lessons = tomllib.loads(LESSONS.read_text(encoding="utf-8"))
    pages = {f"{slug}.md": page(exercises.load(slug), lessons.get(slug, {})) for slug in exercises.LABS}
    for old in set(folder.glob("*.md")) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def page(lab: Lab, lesson: dict) -> str:
    """Return the page of one lab, as Markdown."""
    parts = [
        f"# Lab {lab.number:02d} · {lab.title}",
        "## Goals\n\nAfter this lab students can\n\n" + goals(lab) if goals(lab) else "",
        "## Exercises\n\n" + table(lab),
        "## A session of 50 minutes\n\n" + _rows("| minutes | what happens |", lesson.get("session", ())),
        _list("A demonstration of ten minutes", lesson.get("demo", ()), "1."),
        _list("Questions to ask", lesson.get("ask", ())),
        "## Usual mistakes\n\nThe checks know these mistakes and name them to the student.\n\n" + mistakes(lab),
        _list("Questions to discuss", lesson.get("discuss", ())),
        *map(_exam, lesson.get("exam", ())),
        f"## With less time\n\nLeave out: {lesson['skip']}" if "skip" in lesson else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def goals(lab: Lab) -> str:
    """Return the list under "You will be able to" in the lab's notebook; empty if it has none."""
    path = ROOT / "labs" / f"{lab.number:02d}_{lab.slug}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    found = GOALS.search("\n".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "markdown"))
    return found[1].rstrip() if found else ""


def table(lab: Lab) -> str:
    rows = [(f"`{e.name}`", e.minutes, f"{e.points:g}") for e in lab.exercises.values()]
    rows.append(("all", sum(e.minutes for e in lab.exercises.values()), f"{lab.points:g}"))
    return _rows("| exercise | minutes | points |", rows)


def mistakes(lab: Lab) -> str:
    """Return the first wrong answers of each exercise, by name: what students get wrong, as the bank has it."""
    bank = selfcheck.bank(lab.slug)

    def of(exercise: Exercise) -> list[str]:
        return list(dict.fromkeys(wrong.mistake for wrong in bank if wrong.exercise == exercise.id))[:MISTAKES]

    return "\n".join(f"- `{e.name}`: {'; '.join(of(e))}" for e in lab.exercises.values() if of(e))


def _rows(head: str, rows) -> str:
    line = "|" + " --- |" * (head.count("|") - 1)
    return "\n".join([head, line, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]) if rows else ""


def _list(title: str, items, mark: str = "-") -> str:
    return f"## {title}\n\n" + "\n".join(f"{mark} {item}" for item in items) if items else ""


def _exam(exam: dict) -> str:
    rubric = "\n".join(f"- {line}" for line in exam["rubric"])
    return f"## An exam question\n\n{exam['question']}\n\nRubric:\n\n{rubric}"
