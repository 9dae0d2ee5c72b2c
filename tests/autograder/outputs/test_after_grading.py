"""A walk in the words of docs/instructors.md, section "After the first grading": one class, all that follows."""

import contextlib
import csv
import dataclasses

import pytest
from typer.testing import CliRunner

from autograder import checks, exercises
from autograder.authoring import Lab
from autograder.cli import app
from autograder.grading import selfcheck, store

MEAN = """import torch

def mean(x):
    total = torch.zeros((), dtype=x.dtype)
    number = 0
    for row in x.reshape(-1):
        if number % 2 == 0:
            total = total + row
        else:
            total = row + total
        number += 1
    return total / number
"""
COPIED = (
    MEAN.replace("total", "summe").replace("number", "anzahl").replace("return", "anzahl = max(anzahl, 1)\n    return")
)
pytestmark = pytest.mark.labs  # grades a class five times


@pytest.fixture(autouse=True)
def one_zygote(monkeypatch, zygote):
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)  # the tiny lab is known in this process alone
    monkeypatch.setattr("autograder.grading.batch.Zygote", lambda **_: contextlib.nullcontext(zygote))
    monkeypatch.setattr("autograder.walls.zygote.Zygote", lambda **_: contextlib.nullcontext(zygote))


def run(*arguments, code=0) -> str:
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert ended.exit_code == code, ended.output
    return ended.output


def grades(out) -> dict[str, str]:
    with open(out / "grades.csv", newline="") as file:
        return {row["student"]: row["score"] for row in csv.DictReader(file)}


@contextlib.contextmanager
def too_strict(lab: Lab):
    """While this lasts, the check of `mean` accepts nothing."""
    mean, right = lab.exercises["mean"], lab.exercises["mean"].checks["value"]

    def strict(student, rng):
        checks.equal(1, 2, name="mean(x)")

    mean.checks["value"] = dataclasses.replace(right, function=strict)
    try:
        with pytest.MonkeyPatch.context() as patch:  # its file would be another one
            patch.setattr(store, "checks_and_versions", lambda: b"strict")
            yield
    finally:
        mean.checks["value"] = right


@pytest.fixture
def graded(tmp_path, write_notebook, solution, tiny):
    """Ada is right, ben copied from her, cyd divides by nothing, dan did nothing; and the check was too strict."""
    for name, cells in {
        "ada": (MEAN, solution["count"]),
        "ben": (COPIED, solution["count"]),
        "cyd": (MEAN.replace("/ number", ""), solution["count"]),
        "dan": ("x = 1",),
    }.items():
        write_notebook(f"{name}/lab.ipynb", *cells, hpcdl={"lab": "tiny"})
    submissions, out = tmp_path / "submissions", tmp_path / "results"
    with too_strict(tiny):
        run("grade", submissions, "--out", out, "--allow-weak", "--no-mpi")
    assert grades(out) == {"ada": "40", "ben": "40", "cyd": "40", "dan": "0"}
    return submissions, out


def test_a_class_after_the_first_grading(graded, tmp_path):
    submissions, out = graded

    # "A check was too strict, and you have mended it? ... to read whose points have changed by it"
    regrade = ("regrade", submissions, "--out", out, "--allow-weak", "--no-mpi")
    said = run(*regrade, "--student", "ada")
    assert "ada: tiny.mean 0 -> 60" in said
    said = run(*regrade, "--exercise", "tiny.mean")
    assert "ben: tiny.mean 0 -> 60" in said
    assert "1 change;" in said
    checked = {"ada": "100", "ben": "100", "cyd": "40", "dan": "0"}
    assert grades(out) == checked

    # "Two sheets that you put among the results add what no check can know."
    rows = ['ada,tiny,-5,,"copied a plot"', 'ben,tiny,8,10,"why Adam?"']
    (out / "adjustments.csv").write_text("\n".join(["student,lab,points,of,reason", *rows]) + "\n")
    (out / "groups.csv").write_text("student,group\nada,1\neve,1\n")

    # "Late days become rows of adjustments.csv, by a sheet ... A day that has begun counts"
    (tmp_path / "times.csv").write_text("student,time\ncyd,2026-11-22 08:00\n")
    late = ("--deadline", "2026-11-20 23:59", "--per-day", 5, "--free", 1, "--times", tmp_path / "times.csv")
    assert "cyd: -5, late: 2 days, 1 of them free" in run("late", submissions, out, *late)

    # "All exports follow them ... grading leaves them alone, and grades.csv stays what the checks have found"
    run("grade", submissions, "--out", out, "--allow-weak", "--no-mpi")
    assert grades(out) == checked
    sheet = tmp_path / "moodle.csv"
    sheet.write_text(
        "Identifier,Full name,Username,Grade,Maximum Grade,Feedback comments\n"
        + "".join(
            f"Participant {i},{name.title()},{name},,110,\n"
            for i, name in enumerate(("ada", "ben", "cyd", "dan", "eve"))
        )
    )
    run("export", "moodle", out, sheet, "--out", tmp_path / "filled.csv")
    with open(tmp_path / "filled.csv", newline="") as file:
        filled = {row["Username"]: (row["Grade"], row["Feedback comments"]) for row in csv.DictReader(file)}
    assert {name: grade for name, (grade, _) in filled.items()} == {
        "ada": "95", "ben": "108", "cyd": "35", "dan": "0", "eve": "100"
    }  # fmt: skip
    assert filled["ada"][1] == "copied a plot: -5 points"
    assert filled["cyd"][1] == "mean 0/60; late: 2 days, 1 of them free: -5 points"

    # "instructor.html says of each exercise how much of it the class has, how well it tells students apart, ..."
    # "the page lists answers ... whose parts ... also stand in another student's answer"
    run("export", "html", out, "--alike", "0.5")
    page = (out / "instructor.html").read_text()
    assert "tiny.mean" in page
    assert "Discrimination" in page
    shared = page.partition("Code that stands elsewhere, too")[2]
    assert "ben" in shared
    assert "-5 points: copied a plot" in (out / "feedback" / "ada" / "tiny.html").read_text()

    # "A student disputes a grade? replay repeats the exercise on the inputs of the report"
    assert "In the report: 0 points; now: 0." in run("replay", out / "cyd" / "tiny.json", submissions / "cyd" / "lab.ipynb", "mean")  # noqa: E501 # fmt: skip


def test_points_that_do_not_sum_to_100_are_refused(monkeypatch):
    lab = Lab("tiny", number=0, title="Tiny")
    lab.exercise("mean", points=90, minutes=1)
    monkeypatch.setattr(exercises, "load", lambda slug: lab)
    monkeypatch.setattr(selfcheck.build, "solved", lambda slug: None)
    monkeypatch.setattr(selfcheck.build, "student", lambda slug: None)
    monkeypatch.setattr(selfcheck, "cells_of", lambda notebook: [])
    first = next(selfcheck.selfcheck("tiny", None))
    assert (first.title, first.problems) == ("points", ["the lab has 90 points, not 100"])
