"""A lab's report: what a student guessed, had checked and decided, and what is still missing."""

import re
import shutil

import pytest
from typer.testing import CliRunner

from hpcdl import guesses, labs, points, report
from hpcdl.cli import app
from hpcdl.guesses import Guess, Ledger
from hpcdl.points import Checked, PointsRecord


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Lab 02 in a folder of a student's."""
    monkeypatch.delenv(points.VARIABLE)
    monkeypatch.delenv(guesses.VARIABLE)
    shutil.copy(labs.CLONE / "02_gradient_descent.ipynb", tmp_path)
    return tmp_path / "02_gradient_descent.ipynb"


def run(notebook, *arguments):
    ended = CliRunner().invoke(app, ["report", "02", "--folder", str(notebook.parent), *arguments])
    assert ended.exit_code == 0, ended.output
    return ended.output


def complete(notebook):
    """Guess, check and decide everything."""
    found = report.report(notebook)
    for name in found.guesses:
        Ledger(notebook.parent / guesses.NAME).add(Guess(name, 10.0, unit="times").seen(20.0))
    for exercise in found.exercises:
        PointsRecord(notebook.parent / points.NAME).add(Checked(exercise, 5, 10))
    report.prepare(notebook)
    path = report.decision_file(notebook)
    path.write_text(re.sub(r"(## .*\n)", r"\1\nBecause <b>2</b> is less than 3.\n", path.read_text()))
    return found


def test_a_new_report_says_what_is_missing(notebook):
    found = report.report(notebook)
    assert found.points == 0
    assert len(found.guesses) >= 3
    assert [sentence.partition(":")[0] for sentence in found.missing] == [
        "not checked yet",
        "guesses not made",
        *["not answered"] * len(report.PROMPTS),
    ]
    assert "(missing)" in report.page(found)


def test_a_guess_whose_experiment_did_not_run_is_named(notebook):
    name = next(iter(report.report(notebook).guesses))
    Ledger(notebook.parent / guesses.NAME).add(Guess(name, 3.0))
    assert "experiments not run after a guess: 1" in report.report(notebook).missing


def test_a_complete_report_lacks_nothing(notebook):
    complete(notebook)
    found = report.report(notebook)
    assert found.missing == []
    assert found.points == 5 * len(found.exercises)
    shown = report.page(found)
    assert "2 times too low" in shown
    assert "&lt;b&gt;2&lt;/b&gt;" in shown
    assert "(missing)" not in shown
    assert all(question in shown for question in report.RUBRIC)


def test_the_command_makes_the_form_once_and_the_page_each_time(notebook):
    assert "answer its three questions" in run(notebook)
    form = report.decision_file(notebook)
    form.write_text("## " + report.PROMPTS[0] + "\nA rate of 0.1.\n")
    said = run(notebook, "--name", "Ada")
    assert "answer its three questions" not in said
    assert form.read_text().endswith("A rate of 0.1.\n"), "what was written is kept"
    page = notebook.with_suffix(".report.html").read_text()
    assert "Ada" in page
    assert "A rate of 0.1." in page


def test_no_name_is_in_it_unless_asked(notebook):
    complete(notebook)
    assert "Name: ____" in report.page(report.report(notebook))


@pytest.mark.parametrize("name", ["99", "ddp", "nothing.ipynb"])
def test_an_unknown_lab_is_a_sentence(notebook, name):
    ended = CliRunner().invoke(app, ["report", name, "--folder", str(notebook.parent)])
    assert ended.exit_code == 2
    assert "there is no lab" in ended.output.lower()
    assert "02_gradient_descent" in ended.output
