"""The pages for a lecture show what a class did, without names."""

import json
import random
import re

import pytest
from typer.testing import CliRunner

from autograder import feedback
from autograder.authoring import WrongAnswer
from autograder.cli import app
from autograder.grading import grades, selfcheck
from autograder.outputs import class_guesses, stuck
from autograder.outputs.load import ResultError
from autograder.results import CheckResult, ExerciseResult, LabResult
from hpcdl import guesses, labs

from .conftest import EVIL

MISTAKES = ("This is the sum, not the mean.", "Divided by n - 1.", f"A {EVIL} mistake.", "")


def student(name: str, mistakes: list[str]) -> LabResult:
    """A result with one exercise for each mistake; an empty one is a right answer."""
    done = []
    for k, mistake in enumerate(mistakes):
        check = CheckResult("value", "The mean.", 50, "failed" if mistake else "passed", "values", mistake=mistake)
        check.call, check.got, check.detail = "mean(SECRET-INPUT)", "SECRET-GOT", "SECRET-DETAIL"
        done.append(ExerciseResult(f"tiny.e{k}", f"e{k}", 50, [check]))
    return LabResult(name, "tiny", 100, done)


def test_mistakes_of_a_class_are_recovered():
    """A class drawn from known mistakes: the page has each mistake with the number of students who made it."""
    draw = random.Random(5)
    drawn = [[draw.choice(MISTAKES) for _ in range(2)] for _ in range(60)]
    found = stuck.exercises([student(f"s{k}", mistakes) for k, mistakes in enumerate(drawn)])
    for shown in found:
        k = int(shown.overview.id[-1])
        mine = [mistakes[k] for mistakes in drawn]
        assert dict(shown.mistakes) == {said: mine.count(said) for said in set(mine) - {""}}
        assert shown.solved == mine.count("")
        assert shown.overview.mean == pytest.approx(mine.count("") / 60)
    assert [s.overview.mean for s in found] == sorted(s.overview.mean for s in found)


def test_drawn_numbers_make_no_other_mistake():
    """Each student's inputs have other sizes: the class made one mistake, and one student is told it once."""
    sentences = [
        f"This is the sum over the {n} samples: divide by {n}, with h = {h}." for n in (4, 7) for h in (1e-5, 0.25)
    ]
    found = stuck.exercises([student(f"s{k}", [sentence]) for k, sentence in enumerate(sentences)])
    assert found[0].mistakes == [("This is the sum over the … samples: divide by …, with h = ….", 4)]
    found = stuck.exercises([student(f"s{k}", [sentences[0]]) for k in range(3)])
    assert found[0].mistakes == [(sentences[0], 3)]
    twice = student("a", [sentences[0], sentences[3]])
    twice.exercises = [ExerciseResult("tiny.e0", "e0", 50, [c for e in twice.exercises for c in e.checks])]
    assert stuck.exercises([twice])[0].mistakes[0][1] == 1
    assert feedback.text(twice.exercises[0]).count("divide by") == 1


@pytest.mark.parametrize(
    ("mistakes", "told"),
    [
        (["Divide by 4. Or: Take the mean.", "Take the mean."], {"Take the mean.": 1, "Divide": 0}),
        (["Take the mean.", "Divide by 4. Or: Take the mean."], {"Take the mean.": 1, "Divide": 0}),
        (["Divide by 4. Or: Take the mean.", "Divide by 7. Or: Take the mean."], {"Take the mean.": 1, "Divide": 1}),
        (["Divide by 4. Or: Take the mean.", "Add the bias."], {"Take the mean.": 1, "Divide": 1, "Add": 1}),
    ],
)
def test_a_cause_is_told_once(mistakes, told):
    """Where one input cannot tell two mistakes apart, and another one can, only the right one is told, and once."""
    checks = [c for e in student("a", mistakes).exercises for c in e.checks]
    said = feedback.text(ExerciseResult("tiny.e0", "e0", 50, checks))
    assert {words: said.count(words) for words in told} == told


def test_two_wordings_of_one_cause_are_a_fault():
    """The bank's answers have one mistake each, unless they say otherwise."""
    checks = [c for e in student("a", ["Take the mean.", "Divide by 4."]).exercises for c in e.checks]
    result = LabResult("a", "tiny", 50, [ExerciseResult("tiny.e0", "e0", 50, checks)])
    for causes, faults in ((1, ["e0 names 2 causes: Take the mean. || Divide by ."]), (2, [])):
        answer = WrongAnswer("tiny.e0", "a sum", ("value",), "Take the mean", "", causes)
        assert selfcheck.judge(answer, result) == faults


def a_class(solves, students: int, seed: int) -> list[LabResult]:
    """Four exercises; `solves(skill, k)` is the chance that a student of a skill in 0..1 solves exercise k."""
    draw = random.Random(seed)
    skills = [draw.random() for _ in range(students)]
    wrong = [["" if draw.random() < solves(skill, k) else MISTAKES[0] for k in range(4)] for skill in skills]
    return [student(f"s{i}", mistakes) for i, mistakes in enumerate(wrong)]


def advised(solves, students: int) -> list[int]:
    """For each exercise, in how many of 50 classes a teacher is told that it does not separate students."""
    pages = [stuck.exercises(a_class(solves, students, seed)) for seed in range(50)]
    told = [shown.overview.id for page in pages for shown in page if "separate" in shown.hint]
    return [told.count(f"tiny.e{k}") for k in range(4)]


@pytest.mark.parametrize("students", [10, 20, 60])
def test_advice_on_an_exercise_needs_evidence(students):
    """Exercises that separate, and exercises about which so few students say nothing, are left alone."""
    assert max(advised(lambda skill, k: skill, students)) == 0
    assert max(advised(lambda skill, k: 0.7, students)) <= 10


def test_an_exercise_that_only_weak_students_solve_is_named():
    told = advised(lambda skill, k: skill if k else 1 - skill, 60)
    assert told[0] > 40
    assert max(told[1:]) <= 5


def test_mistake_of_one_student_is_left_out():
    found = stuck.exercises([student("a", [MISTAKES[0]]), student("b", [MISTAKES[1]]), student("c", [MISTAKES[1]])])
    assert found[0].mistakes == [(MISTAKES[1], 2)]


def test_report_page_names_nobody(tmp_path):
    names = ["lovelaceada", "doedan_12", EVIL]
    results = [student(name, [MISTAKES[2], MISTAKES[0]]) for name in names]
    grades.write(results, tmp_path / "results")
    out = tmp_path / "page.html"
    ran = CliRunner().invoke(app, ["report", str(tmp_path / "results"), "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    page = out.read_text(encoding="utf-8")
    assert "3 × This is the sum, not the mean." in page
    assert not [word for word in ("lovelace", "doedan", "<script", "SECRET") if word in page]


def write_guesses(folder, name, **given):
    """A student's ledger as a notebook writes it."""
    lines = [
        {"name": question, "guess": g, "truth": t, "unit": u, "error": None} for question, (g, t, u) in given.items()
    ]
    path = folder / name / ".guesses.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(json.dumps({**line, "when": "2026-11-25T10:00:00"}) for line in lines), encoding="utf-8")


@pytest.fixture
def guessed(tmp_path):
    """Four students: a number, a choice, a question that only one answered, and answers about their own programs."""
    for name, number, choice in (("ada", 10.0, "a"), ("ben", 20.0, "b"), ("eve", 4000.0, "b"), (EVIL[1:7], None, "b")):
        given = {"tiny.number": (number, 12.0, "ms"), "tiny.choice": (choice, "b", "")}
        given |= {"tiny.alone": (1.0, None, EVIL)} if name == "ada" else {}
        given[f"{guesses.OWN}tiny.mean.bytes"] = number, 40.0, "bytes"
        write_guesses(tmp_path / "in", name, **given)
    return tmp_path / "in"


def test_guesses_are_counted(guessed):
    number, choice = class_guesses.collected(guessed)
    assert (sorted(number.answers), number.truth, number.rather_see) == ([10, 20, 4000], 12, 1)
    assert "2 within a factor of 2 of 12 ms" in number.summary
    assert "3 right: b" in choice.summary
    assert number.picture.count("<rect") == 3
    assert choice.picture.count('class="bar right"') == 1


def test_guesses_page_names_nobody(guessed, tmp_path):
    out = tmp_path / "page.html"
    ran = CliRunner().invoke(app, ["guesses", str(guessed), "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    page = out.read_text(encoding="utf-8")
    assert "tiny.number" in page
    assert "tiny.alone" not in page
    assert not re.search(r"\b(ada|ben|eve)\b", page)
    ran = CliRunner().invoke(app, ["guesses", str(guessed), "--out", str(out), "--least", "1"])
    assert ran.exit_code == 0, ran.output
    assert "<script" not in out.read_text(encoding="utf-8")


def test_guesses_of_an_empty_folder(tmp_path):
    with pytest.raises(ResultError, match=r"no guesses .*\.guesses\.jsonl"):
        class_guesses.collected(tmp_path)


def test_questions_of_labs_have_their_words():
    found = guesses.questions(labs.notebooks(labs.shipped()))
    assert len(found) > 10
    assert all(text.endswith("?") or " " in text for text, _ in found.values())
