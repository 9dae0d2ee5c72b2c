"""The bundle for Gradescope runs as Gradescope runs it, and whatever happens a student gets a result."""

import json
import os
import shlex
import subprocess
import sys
import zipfile

import pytest

from autograder.authors import build
from autograder.outputs import gradescope
from autograder.results import LabResult

LAB = "calculus"
TEST_KEYS = {"name", "number", "score", "max_score", "status", "output", "output_format", "visibility", "tags"}


@pytest.fixture
def root(tmp_path):
    """The folders that Gradescope makes, with the bundle unpacked and a Python in its place."""
    gradescope.bundle(LAB, tmp_path / "bundle.zip", "hpcdl")
    with zipfile.ZipFile(tmp_path / "bundle.zip") as archive:
        archive.extractall(tmp_path / "source")
    for folder in ("submission", "results", "venv/bin"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "submission_metadata.json").write_text('{"users": [{"id": 4711, "name": "<b>"}]}')
    use_python(tmp_path, f'exec {shlex.quote(sys.executable)} "$@"')
    return tmp_path


def use_python(root, line):
    python = root / "venv" / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{line}\n")
    python.chmod(0o755)


def run(root):
    environment = {**os.environ, "AUTOGRADER_ROOT": str(root)}
    command = ["bash", str(root / "source" / "run_autograder")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    return done, json.loads((root / "results" / "results.json").read_text())


@pytest.mark.labs
def test_a_submission_gets_its_tests_and_its_score(root):
    build_to = root / "submission" / "lab.ipynb"
    build_to.write_text(build.write(build.solved(LAB)))
    done, result = run(root)
    assert done.returncode == 0, done.stderr
    assert result["score"] == 100 == sum(test["score"] for test in result["tests"])
    assert all(set(test) == TEST_KEYS and test["status"] == "passed" for test in result["tests"])
    assert result["stdout_visibility"] == "hidden"
    assert result["tests"][0]["number"] == "1.1"


def test_a_grader_that_dies_leaves_a_result_that_says_so(root):
    use_python(root, "kill -9 $$")
    done, result = run(root)
    assert done.returncode != 0
    assert result["score"] == 0
    assert "no verdict on your work" in result["output"]


@pytest.mark.labs  # one with a notebook is graded in the first tier
def test_a_submission_without_a_notebook_says_so(root):
    (root / "submission" / "report.pdf").write_bytes(b"%PDF")
    result = gradescope.results_json(gradescope.grade(root, LAB))
    assert result["score"] == 0
    assert "no notebook" in result["output"]
    assert result["tests"][0]["max_score"] == 100


def test_results_show_what_a_student_may_see_and_no_more(make_result):
    shown = json.dumps(gradescope.results_json(make_result("ada", 0)))
    assert shown.count("SECRET-INPUT") == 1  # of the check that is not hidden
    assert "grader.py" not in shown


def test_the_bundle_has_its_scripts_at_the_root_and_a_wheel_that_is_given(tmp_path):
    wheel = tmp_path / "hpcdl-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    gradescope.bundle(LAB, tmp_path / "b.zip", str(wheel))
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert sorted(archive.namelist()) == [wheel.name, "run_autograder", "secret", "setup.sh"]
        assert archive.getinfo("run_autograder").external_attr >> 16 & 0o111
        scripts = {name: archive.read(name).decode() for name in ("setup.sh", "run_autograder")}
    assert f"install --no-cache-dir ./{wheel.name}\n" in scripts["setup.sh"]
    for script in scripts.values():
        subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=20)


def test_modules_of_a_submission_come_along(root, monkeypatch):
    given = []

    def spy(todo, *rest):
        given.extend(todo)
        return [(todo[0], LabResult("ada", LAB, 100.0))]

    monkeypatch.setattr("autograder.grading.batch.grade_all", spy)
    (root / "submission" / "lab.ipynb").write_text("{}")
    (root / "submission" / "helpers.py").write_text("x = 1")
    gradescope.grade(root, LAB)
    assert [name for name, _ in given[0].beside] == ["helpers.py"]
