"""Grading again: some students, one exercise, and whose points have changed; what was not asked for stays."""

import contextlib
import csv
import dataclasses
import json

import pytest
from typer.testing import CliRunner

from autograder import checks
from autograder.cli import app


@pytest.fixture(autouse=True)
def one_zygote(monkeypatch, zygote):
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)  # the tiny lab is known in this process alone
    monkeypatch.setattr("autograder.grading.batch.Zygote", lambda **_: contextlib.nullcontext(zygote))


def run(*arguments):
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert "Traceback" not in ended.output
    return ended


@pytest.fixture
def class_(tmp_path, write_notebook, solution):
    """Ada and ben, graded by a check of `mean` that was too strict: neither passed."""
    for name in ("ada", "ben"):
        write_notebook(f"{name}.ipynb", *solution.values())
    return tmp_path / "submissions", tmp_path / "results"


@pytest.fixture
def strict(tiny):
    """A mistake of the instructor's: while this lasts, `mean` has no points."""
    mean, right = tiny.exercises["mean"], tiny.exercises["mean"].checks["value"]

    @contextlib.contextmanager
    def lasting():
        def wrong(student, rng):
            checks.equal(1, 2, name="mean(x)")

        mean.checks["value"] = dataclasses.replace(right, function=wrong)
        try:
            yield
        finally:
            mean.checks["value"] = right

    return lasting


def grades(out):
    with open(out / "grades.csv", newline="") as file:
        return {row["student"]: float(row["score"]) for row in csv.DictReader(file)}


def test_whose_points_have_changed_is_said_and_written(class_, strict):
    submissions, out = class_
    with strict():
        run("grade", submissions, "--out", out, "--allow-weak")
    assert grades(out) == {"ada": 40, "ben": 40}
    ended = run("regrade", submissions, "--out", out, "--student", "ada")
    assert ended.exit_code == 0, ended.output
    assert "ada: tiny.mean 0 -> 60" in ended.output
    assert grades(out) == {"ada": 100, "ben": 40}
    ended = run("regrade", submissions, "--out", out)
    assert "ben: tiny.mean 0 -> 60" in ended.output
    assert "1 change;" in ended.output
    assert grades(out) == {"ada": 100, "ben": 100}


def test_one_exercise_is_graded_again_and_the_others_stay(class_, strict):
    submissions, out = class_
    run("grade", submissions, "--out", out, "--allow-weak")
    file = out / "ada" / "tiny.json"
    before = json.loads(file.read_text())["exercises"][0]
    with strict():
        assert "0 changes" in run("regrade", submissions, "--out", out, "--exercise", "tiny.count").output
        mean, count = json.loads(file.read_text())["exercises"]
        assert mean == before
        assert "tiny.mean 60 -> 0" in run("regrade", submissions, "--out", out, "--exercise", "tiny.mean").output
    assert json.loads(file.read_text())["exercises"][1] == count
    assert grades(out) == {"ada": 40, "ben": 40}


def test_what_there_is_not_is_named(class_):
    submissions, out = class_
    run("grade", submissions, "--out", out, "--allow-weak")
    for options, said in (
        (("--student", "eve"), "There is no submission of 'eve'"),
        (("--exercise", "tiny.mode"), "There is no exercise 'tiny.mode'"),
    ):
        ended = run("regrade", submissions, "--out", out, *options)
        assert ended.exit_code == 1
        assert said in " ".join(ended.output.split())


def test_who_was_never_graded_is_left_out(class_, write_notebook, solution):
    submissions, out = class_
    run("grade", submissions, "--out", out, "--allow-weak")
    write_notebook("eve.ipynb", *solution.values())
    assert "0 changes" in run("regrade", submissions, "--out", out).output
    assert set(grades(out)) == {"ada", "ben"}


def test_without_walls_nobody_is_graded_again_unless_that_is_said(class_, monkeypatch):
    submissions, out = class_
    run("grade", submissions, "--out", out, "--allow-weak")
    monkeypatch.setattr("autograder.walls.sandbox.tier", lambda: "weak")
    ended = run("regrade", submissions, "--out", out)
    assert ended.exit_code == 4
    assert "--allow-weak" in ended.output


def test_what_could_not_be_graded_is_said(class_):
    """A row without a grade gets one as soon as its file can be read; a grade outlives its file."""
    submissions, out = class_
    whole = (submissions / "ada.ipynb").read_text()
    (submissions / "ada.ipynb").write_text(whole[: len(whole) // 2])
    run("grade", submissions, "--out", out, "--allow-weak")
    (submissions / "ada.ipynb").write_text(whole)
    ended = run("regrade", submissions, "--out", out)
    assert "ada: could not be graded before (the file is not a notebook" in ended.output.replace("\n", " ")
    assert "now 100 / 100" in ended.output.replace("\n", " ")
    assert grades(out) == {"ada": 100, "ben": 100}
    (submissions / "ben.ipynb").write_text("")
    ended = run("regrade", submissions, "--out", out, "--student", "ben")
    why = "the file is empty; open it in JupyterLab, save it and hand it in again"
    assert f"ben: can no longer be graded ({why}); keeps 100 points" in ended.output.replace("\n", " ")
    assert grades(out) == {"ada": 100, "ben": 100}
