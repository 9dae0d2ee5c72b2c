"""Written answers: collected from what students hand in, marked by hand, and counted by every export."""

import csv
import zipfile
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from autograder.cli import app
from autograder.grading import grades
from autograder.outputs import adjustments, load, written
from autograder.outputs.load import ResultError
from autograder.results import LabResult
from hpcdl import report

LAB = "gradient_descent"
FORM = f"02_{LAB}.decision.md"
EVIL = "<script>alert(1)</script>"


def form(*texts: str) -> str:
    return "".join(f"## {prompt}\n\n{text}\n\n" for prompt, text in zip(report.PROMPTS, texts, strict=True))


def hand_in(folder, student, *texts, name=FORM):
    (folder / student).mkdir(parents=True, exist_ok=True)
    (folder / student / f"02_{LAB}.ipynb").write_text("{}")
    (folder / student / name).write_text(form(*texts))


@pytest.fixture
def submissions(tmp_path):
    folder = tmp_path / "submissions"
    hand_in(folder, "ada", "Adam or SGD: Adam", "a loss of 0.11", "with less memory")
    hand_in(folder, "ben", f"SGD {EVIL}", "", "")
    hand_in(folder, "cy", "", "", "")
    return folder


@pytest.fixture
def results(tmp_path):
    found = [LabResult(student, LAB, 100) for student in ("ada", "ben", "dee")]
    grades.write(found, tmp_path / "results")
    return tmp_path / "results"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def marks_sheet(path, *rows):
    """A sheet as the page exports it: (student, points, comment) of 6."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["answer", "student", "lab", "1", "2", "3", "points", "of", "comment"])
        out.writerows([written.key(who, LAB), "", LAB, "", "", "", points, 6, said] for who, points, said in rows)
    return path


def scores(results):
    found = adjustments.adjusted(load.results(results), results)
    return {each.student: (each.score, each.max_score) for each in found}


def test_answers_are_collected(submissions):
    answers, left = written.collected(submissions)
    assert [(answer.student, answer.lab) for answer in answers] == [("ada", LAB), ("ben", LAB)]
    assert answers[0].texts == ("Adam or SGD: Adam", "a loss of 0.11", "with less memory")
    assert left == [f"cy: {FORM}: no question is answered"]


def test_empty_page_beside_an_answer_is_not_mentioned(submissions):
    """`hpcdl report` writes its page before the student answers."""
    (submissions / "ada" / f"02_{LAB}.report.html").write_text("<main></main>")
    assert [said.partition(":")[0] for said in written.collected(submissions)[1]] == ["cy"]


def test_report_page_counts_without_form(tmp_path):
    texts = ("Adam & SGD <b>", "", "line one\n\nline two")
    shown = SimpleNamespace(title="T", name="", points=0, missing=[], decision=texts, guesses={}, exercises={})
    (tmp_path / "all" / "ada").mkdir(parents=True)
    (tmp_path / "all" / "ada" / f"02_{LAB}.report.html").write_text(report.page(shown))
    (answer,), _ = written.collected(tmp_path / "all")
    assert answer.texts == texts


@pytest.mark.parametrize(
    "name", [f"full name_7_assignsubmission_file_/{FORM}", f"lovelaceada_7_99_{FORM}", f"ada/{FORM}"]
)
def test_answer_without_notebook_is_found(tmp_path, name):
    path = tmp_path / "all" / name
    path.parent.mkdir(parents=True)
    path.write_text(form("a", "b", "c"))
    (answer,), _ = written.collected(tmp_path / "all")
    assert answer.texts == ("a", "b", "c")


def test_answer_in_zip_file_is_found(tmp_path):
    (tmp_path / "all").mkdir()
    with zipfile.ZipFile(tmp_path / "all" / "ada.zip", "w") as archive:
        archive.writestr(f"02_{LAB}.ipynb", "{}")
        archive.writestr(FORM, form("a", "b", "c"))
    assert written.collected(tmp_path / "all")[0] == [written.Answer("ada", LAB, ("a", "b", "c"))]


def test_submit_includes_the_decision(tmp_path):
    from hpcdl import submit

    notebook = tmp_path / f"02_{LAB}.ipynb"
    notebook.write_text("{}")
    assert submit.files_along(notebook, b"{}") == ([], [])
    report.prepare(notebook)
    assert submit.files_along(notebook, b"{}") == ([FORM], [])


def test_no_answer_is_said(tmp_path):
    with pytest.raises(ResultError, match=r"no written answer .* `hpcdl report` makes"):
        written.collected(tmp_path)


def test_page_escapes_and_hides_names(submissions):
    answers, _ = written.collected(submissions)
    questions = written.rubric(None)
    named, hidden = (written.page(answers, questions, names) for names in (True, False))
    assert EVIL not in named
    assert "alert(1)" in named
    assert "<h2" in named
    assert 'data-student="ada"' in named
    assert not {"ada", "ben"} & set(hidden.replace('"', " ").replace("<", " ").replace(">", " ").split())


def test_rubric_from_sheet(tmp_path):
    path = tmp_path / "rubric.csv"
    path.write_text("question,points\nIs it right?,4\nIs it short?,1\n")
    assert written.rubric(path) == [
        written.RubricQuestion("Is it right?", 4),
        written.RubricQuestion("Is it short?", 1),
    ]
    for wrong in ("question,points\n", "question,points\nIs it right?,2.5\n", "question,points\nIs it right?,11\n"):
        path.write_text(wrong)
        with pytest.raises(ResultError, match=r"has no question|whole number from 1 to 10"):
            written.rubric(path)


def test_marks_count_in_every_export(results, tmp_path):
    sheet = marks_sheet(tmp_path / "marks.csv", ("ada", 5, "'=a good number"), ("ben", "", ""), ("eve", 2, ""))
    ended = run("marks", sheet, results)
    assert ended.exit_code == 0, ended.output
    assert "Wrote 1 row" in ended.output
    assert ended.output.count("left out") == 2
    assert scores(results) == {"ada": (5, 106), "ben": (0, 106), "dee": (0, 106)}
    run("export", "markdown", results)
    said = (results / "feedback" / "ada" / f"{LAB}.md").read_text().replace("\\", "")
    assert "+5 points: written answer: =a good number" in said


def test_marks_again_replace_only_their_rows(results, tmp_path):
    late = adjustments.AdjustmentRow("ada", LAB, -1, 0, "late")
    adjustments.write(results / adjustments.ADJUSTMENTS, [late])
    run("marks", marks_sheet(tmp_path / "a.csv", ("ada", 5, ""), ("dee", 1, "")), results)
    run("marks", marks_sheet(tmp_path / "b.csv", ("ada", 3, "")), results)
    assert scores(results) == {"ada": (2, 106), "ben": (0, 106), "dee": (1, 106)}
    assert late in adjustments.read(results / adjustments.ADJUSTMENTS)


def test_group_shares_marks(results, tmp_path):
    (results / adjustments.GROUPS).write_text("student,group\nada,1\nmaya,1\n")
    run("marks", marks_sheet(tmp_path / "marks.csv", ("ada", 4, "")), results)
    assert scores(results)["maya"] == (4, 106)


@pytest.mark.parametrize("points", ["7", "-1", "many", "nan"])
def test_impossible_marks_are_refused(results, tmp_path, points):
    ended = run("marks", marks_sheet(tmp_path / "marks.csv", ("ada", points, "")), results)
    assert ended.exit_code
    assert "write numbers from 0 to the maximum" in " ".join(ended.output.split())
    assert not (results / adjustments.ADJUSTMENTS).exists()


def test_another_sheet_is_refused(results, tmp_path):
    (tmp_path / "other.csv").write_text("student,points\nada,3\n")
    ended = run("marks", tmp_path / "other.csv", results)
    assert ended.exit_code
    assert "give the file that the page exported" in " ".join(ended.output.split())
