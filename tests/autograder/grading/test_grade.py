"""A folder of submissions becomes a grade sheet: a row for each, whatever is in it, and the batch continues."""

import contextlib
import csv
import dataclasses
import json
import os

import pytest
from typer.testing import CliRunner

from autograder.authoring import WrongAnswer
from autograder.cli import app
from autograder.grading import grades
from autograder.grading.seeds import seeds

LOOP = "def count(n):\n    while True:\n        pass\ndef double(f, x):\n    return 2 * f(x)\n"


@pytest.fixture(autouse=True)
def one_zygote(monkeypatch, zygote, request):
    """Every command uses the zygote of this run, except in the test that grades from start to end."""
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)  # the tiny lab is known in this process alone
    if "from_start_to_end" not in request.node.name:
        monkeypatch.setattr("autograder.grading.batch.Zygote", lambda **_: contextlib.nullcontext(zygote))
        monkeypatch.setattr("autograder.walls.zygote.Zygote", lambda **_: contextlib.nullcontext(zygote))


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def graded(tmp_path, *options):
    result = run("grade", tmp_path / "submissions", "--out", tmp_path / "results", "--allow-weak", *options)
    assert result.exit_code == 0, result.output
    with open(tmp_path / "results" / "grades.csv", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def details(tmp_path, student):
    return json.loads((tmp_path / "results" / student / "tiny.json").read_text())


def test_four_kinds_of_answers_get_their_points(tmp_path, write_notebook, solution):
    write_notebook("ada/lab.ipynb", *solution.values())
    write_notebook(
        "ben.ipynb", "def mean(x):\n    raise NotImplementedError", "def count(n): raise NotImplementedError"
    )
    write_notebook("cyd/x.ipynb", solution["mean"].replace("/ x.numel()", ""), solution["count"])
    write_notebook("dan/x.ipynb", solution["mean"], LOOP)
    rows = graded(tmp_path)
    assert {name: row["score"] for name, row in rows.items()} == {"ada": "100", "ben": "0", "cyd": "40", "dan": "80"}
    assert {row["max_score"] for row in rows.values()} == {"100"}
    assert rows["ben"]["message"] == "nothing done yet"
    assert rows["cyd"]["message"] == "mean 0/60"
    mean = details(tmp_path, "cyd")["exercises"][0]["checks"]
    assert mean[0]["mistake"] == "This is the sum: divide by the number of elements."
    assert [check["status"] for check in mean] == ["failed", "skipped"]
    loop = details(tmp_path, "dan")["exercises"][1]["checks"]
    assert [(check["status"], check.get("kind", "")) for check in loop] == [("failed", "timeout"), ("passed", "")]
    assert loop[0]["source"] in ("while True:", "pass")


def test_every_check_of_the_lab_is_in_the_result_whatever_the_code_does(tmp_path, write_notebook, tiny):
    write_notebook("eve.ipynb", "def mean(x):\n    import os\n    os._exit(0)", hpcdl={"lab": "tiny"})
    assert graded(tmp_path)["eve"]["score"] == "0"
    found = [check["name"] for exercise in details(tmp_path, "eve")["exercises"] for check in exercise["checks"]]
    assert found == [check for exercise in tiny.exercises.values() for check in exercise.checks]


def test_files_that_are_no_submission_get_a_row_with_the_reason(tmp_path, write_notebook, solution):
    good = write_notebook("good.ipynb", *solution.values())
    folder = good.parent
    (folder / "cut.ipynb").write_text(good.read_text()[:300])
    (folder / "essay.docx").write_bytes(b"PK")
    (folder / "empty").mkdir()
    (folder / "other.ipynb").write_text('{"cells": []}')
    (folder / ".DS_Store").write_bytes(b"")
    rows = graded(tmp_path)
    assert rows["good"]["score"] == "100"
    assert {name: row["status"] for name, row in rows.items()} == {
        "good": "graded",
        "cut": "ungradable",
        "essay.docx": "ungradable",
        "empty": "ungradable",
        "other": "ungradable",
    }
    assert all(row["message"] for name, row in rows.items() if name != "good")


def test_names_that_a_spreadsheet_or_a_path_could_misread_are_harmless(tmp_path, write_notebook, solution):
    names = ["=cmd()", "-1+1", "@x", 'a"b\nc', "ü,;", "..hidden"[2:], "[bold]"]
    for name in names:
        write_notebook(f"{name}/x.ipynb", solution["mean"])
    folder = os.fsencode(tmp_path / "submissions") + b"/\xff\xfe"
    os.mkdir(folder)
    rows = graded(tmp_path)
    assert len(rows) == len(names) + 1
    assert {"'=cmd()", "'-1+1", "'@x", "[bold]", "\\xff\\xfe"} <= set(rows)
    assert all(path.is_relative_to(tmp_path / "results") for path in (tmp_path / "results").rglob("*.json"))


@pytest.mark.parametrize("name", ["..", ".", "../x", "a/b", "\x00", "...", "é" * 300, ""])
def test_a_students_name_is_one_folder_inside_the_results(name, tmp_path):
    folder = (tmp_path / grades.safe_name(name)).resolve()
    assert folder.parent == tmp_path.resolve()
    assert len(os.fsencode(folder.name)) <= 200


def test_of_two_notebooks_the_newest_counts_and_the_row_says_so(tmp_path, write_notebook, solution):
    newer, older = (
        write_notebook("ada/a.ipynb", *solution.values()),
        write_notebook("ada/b.ipynb", "def mean(x): return 0"),
    )
    os.utime(older, (1, 1))
    os.utime(newer, (2, 2))
    row = graded(tmp_path)["ada"]
    assert row["score"] == "100"
    assert "'a.ipynb', counts" in row["message"]


def test_inputs_differ_between_students_and_repeat_for_each(tmp_path, write_notebook, solution):
    for name in ("ada", "ben"):
        write_notebook(f"{name}.ipynb", *solution.values())
    graded(tmp_path)
    first = {name: details(tmp_path, name) for name in ("ada", "ben")}
    graded(tmp_path)
    again = {name: details(tmp_path, name) for name in ("ada", "ben")}

    def drawn(result):
        return [check["seed"] for exercise in result["exercises"] for check in exercise["checks"]]

    assert drawn(first["ada"]) == drawn(again["ada"])
    assert not set(drawn(first["ada"])) & set(drawn(first["ben"]))
    assert seeds(b"a", "x")("c") != seeds(b"b", "x")("c")


def test_nothing_to_grade_and_unknown_labs_are_said(tmp_path):
    (tmp_path / "submissions").mkdir()
    result = run("grade", tmp_path / "submissions", "--out", tmp_path / "results")
    assert result.exit_code == 1
    assert "nothing to grade" in result.output
    assert run("grade", tmp_path, "--out", tmp_path, "--lab", "tinny").exit_code == 2


def test_check_prints_a_students_own_run(write_notebook, solution):
    path = write_notebook("me.ipynb", solution["mean"].replace("/ x.numel()", ""), LOOP)
    result = run("check", path)
    assert result.exit_code == 1
    assert "This is the sum" in result.output
    assert "while True:" in result.output
    assert "Score: 20 / 100" in result.output
    assert run("check", write_notebook("all.ipynb", *solution.values())).exit_code == 0


def test_selfcheck_proves_a_bank_and_finds_a_bank_that_is_wrong(monkeypatch, solution, notebook_text):
    import nbformat

    from autograder.authors import build
    from autograder.grading import selfcheck

    blank = [
        "def mean(x):\n    raise NotImplementedError",
        "def count(n):\n    raise NotImplementedError",
        "check('tiny.mean')",
    ]
    blank.append("def double(f, x):\n    raise NotImplementedError")
    monkeypatch.setattr(build, "source_path", lambda slug: f"labs/source/90_{slug}.py")
    monkeypatch.setattr(selfcheck.lazy, "problems", lambda *_: [])  # to count up to n is no work
    monkeypatch.setattr(build, "solved", lambda slug: nbformat.reads(notebook_text(*solution.values()), 4))
    monkeypatch.setattr(build, "student", lambda slug: nbformat.reads(notebook_text(*blank), 4))
    wrong = "def mean(x):\n    return x.sum()\n"
    answers = [WrongAnswer("tiny.mean", "sum", ("value", "leaves_x_alone"), "This is the sum", wrong)]
    monkeypatch.setattr(selfcheck, "bank", lambda slug: answers)
    result = run("selfcheck", "tiny")
    assert result.exit_code == 0, result.output
    answers[0] = WrongAnswer("tiny.mean", "sum", ("value",), "no such words", wrong)
    result = run("selfcheck", "tiny")
    assert result.exit_code == 1
    assert "mean.leaves_x_alone should pass, and does not" in result.output
    assert "the feedback does not say 'no such words'" in result.output


def test_no_file_of_a_student_is_parsed_in_the_graders_own_process(tmp_path, write_notebook, solution, monkeypatch):
    from autograder.inside import fingerprint, notebook, source

    def refuse(*_):
        raise AssertionError("parsed in the grader")

    for module, name in ((notebook, "parse"), (source, "needed"), (source, "defined_names"), (fingerprint, "of")):
        monkeypatch.setattr(module, name, refuse)
    write_notebook("ada.ipynb", *solution.values())
    assert graded(tmp_path)["ada"]["score"] == "100"


def test_a_hidden_check_tells_a_student_its_category_and_no_inputs(write_notebook, solution, tiny):
    check = tiny.exercises["mean"].checks["value"]
    path = write_notebook("me.ipynb", solution["mean"].replace("x.sum() /", "3.5 * x.sum() /"), solution["count"])
    assert "tensor([" in run("check", path).output
    tiny.exercises["mean"].checks["value"] = dataclasses.replace(check, hidden=True)
    try:
        said = " ".join(run("check", path).output.split())
    finally:
        tiny.exercises["mean"].checks["value"] = check
    assert "found a value that is not the right one" in said
    assert "tensor(" not in said
