"""A page of feedback for each student and one for the instructor: HTML without scripts, everything escaped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from autograder import feedback
from autograder.grading.grades import safe_name
from autograder.grading.likeness import THRESHOLD
from autograder.grading.store import write_text
from autograder.results import LabResult

from .instructor import Overview
from .load import for_student

ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(result: LabResult) -> str:
    """Return one student's feedback page, without what they must not see."""
    shown = for_student(result)
    head = f"<style>{feedback.STYLE}</style>"  # stands once in the page, not before each exercise
    bodies = [Markup(feedback.html(exercise).removeprefix(head)) for exercise in shown.exercises]  # escapes by itself
    return ENVIRONMENT.get_template("feedback.html").render(
        result=shown, bodies=bodies, style=Markup(feedback.STYLE), coded=lambda note: Markup(feedback.inline(note))
    )


def instructor_page(found: list[LabResult], alike: float = THRESHOLD) -> str:
    """Return the instructor's page: scores, difficulty of each check, the most common mistakes, and what to look at."""
    return ENVIRONMENT.get_template("instructor.html").render(overview=Overview(found, alike))


def rendered(template: str, **values: Any) -> str:
    """Render one of our templates, without names of students; `style` is our own CSS."""
    values["style"] = Markup(values["style"])
    return ENVIRONMENT.get_template(template).render(**values)


def write(found: list[LabResult], out: Path) -> list[Path]:
    """Write `<student>/<lab>.html` for each result under `out`; return the paths."""
    return write_pages(found, out, page, ".html")


def write_pages(found: list[LabResult], out: Path, make: Callable, suffix: str) -> list[Path]:
    """Write the text of `make(result)`, one file for each student and lab."""
    paths = []
    for result in found:
        paths.append(out / safe_name(result.student) / f"{safe_name(result.lab or 'ungradable')}{suffix}")
        write_text(paths[-1], make(result))
    return paths
