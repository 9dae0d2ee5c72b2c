"""Every lab has a lesson for teachers, and a page that shows it."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

from autograder import exercises

DOCS = Path(__file__).resolve().parents[1] / "docs"
LESSONS = tomllib.loads((DOCS / "teaching" / "lessons.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("teaching_pages", DOCS / "teaching_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("slug", exercises.LABS)
def test_lesson_is_complete(slug):
    lesson = LESSONS[slug]
    assert [len(lesson[part]) for part in ("session", "demo", "ask", "discuss", "exam")] == [5, 3, 3, 3, 2]
    assert sum(minutes for minutes, _ in lesson["session"]) == 50
    assert all(exam["question"] and exam["rubric"] for exam in lesson["exam"])


def test_no_lesson_is_of_a_lab_that_is_gone():
    assert set(LESSONS) == set(exercises.LABS)


def test_names_in_lessons_are_exercises():
    """Words in backticks that look like exercises are exercises of that lab."""
    for slug, lesson in LESSONS.items():
        lab = exercises.load(slug)
        words = " ".join([*(row[1] for row in lesson["session"]), lesson["skip"]]).split("`")[1::2]
        assert {word for word in words if lab.find(word) is None} == set(), slug


@pytest.mark.parametrize("slug", ["gradient_descent", "own_stack"])
def test_page_shows_exercises_and_mistakes(slug, pages):
    lab = exercises.load(slug)
    text = pages.page(lab, LESSONS[slug])
    assert all(f"| `{e.name}` | {e.minutes} | {e.points:g} |" in text for e in lab.exercises.values())
    assert "## Usual mistakes" in text
    assert "After this lab students can" in text
    assert pages.page(lab, {}).startswith("# Lab")
