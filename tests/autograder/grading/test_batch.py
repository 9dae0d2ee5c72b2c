"""A batch survives its own end: what was done is kept, what was not is done, and two graders do not collide."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from autograder import exercises
from autograder.cli import app
from autograder.grading import batch, grade, store
from autograder.grading.layouts import Submission

ANSWER = "def mse_loss(w, X, y):\n    return ((X @ w - y) ** 2).mean()\n"


@pytest.fixture(autouse=True)
def one_zygote(monkeypatch, zygote):
    monkeypatch.setattr("autograder.grading.batch.Zygote", lambda **_: contextlib.nullcontext(zygote))
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)


def run(*arguments):
    arguments += ("--allow-weak",) if arguments[0] == "grade" else ()  # the batch is tested on every system
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def rows(out):
    with open(out / "grades.csv", newline="") as file:
        return list(csv.DictReader(file))


def wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def grader(folder, out, **options) -> subprocess.Popen:
    """`autograder grade` on two lanes, in a process of its own."""
    command = [sys.executable, "-m", "autograder", "grade", folder, "--out", out, "--lanes", "2", "--allow-weak"]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, start_new_session=True, **options)


def imports_torch(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("libtorch" in mapped.path for mapped in process.memory_maps())
    return False


@pytest.mark.labs  # one that is killed later is asked in the first tier
def test_lanes_whose_grader_is_killed_while_they_begin_end_too(tmp_path, write_notebook):
    for name in ("ada", "ben"):
        write_notebook(f"{name}.ipynb", "x = 1", hpcdl={"lab": "gradient_descent"})
    process = grader(tmp_path / "submissions", tmp_path / "results")
    try:
        wait_for(lambda: any(map(imports_torch, psutil.Process(process.pid).children())))
        started = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_for(lambda: not psutil.wait_procs(started, timeout=0)[1])


@pytest.mark.labs  # starts two lanes
def test_sigterm_ends_a_batch_with_one_sentence(tmp_path, write_notebook):
    loop = "while True:\n    pass"
    for name in ("ada", "ben", "cyd"):
        write_notebook(f"{name}.ipynb", loop, ANSWER, hpcdl={"lab": "gradient_descent"})
    with open(tmp_path / "said", "w") as file:
        process = grader(tmp_path / "submissions", tmp_path / "results", stderr=file)
    try:
        wait_for(lambda: any(map(imports_torch, psutil.Process(process.pid).children())))
        started = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.terminate()
        assert process.wait(60) == 143
    assert (tmp_path / "said").read_text().startswith("Ended by SIGTERM. What was done is kept")
    assert len((tmp_path / "said").read_text().splitlines()) == 1
    wait_for(lambda: not psutil.wait_procs(started, timeout=0)[1])


@pytest.mark.labs  # a minute
def test_killed_batch_resumes_to_the_same_grades(tmp_path, write_notebook, graded):
    students = [f"s{i:02}" for i in range(12)]
    for i, name in enumerate(students):
        write_notebook(f"{name}.ipynb", ANSWER if i % 2 else "x = 1", hpcdl={"lab": "gradient_descent"})
    folder, killed, whole = (tmp_path / name for name in ("submissions", "killed", "whole"))
    process = grader(folder, killed)
    try:
        wait_for(lambda: len(list(killed.glob(".cache/*.json"))) >= 3)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_for(lambda: run("grade", folder, "--out", killed).exit_code == 0)  # the lanes may take a moment to end
    assert len(graded) <= len(students) - 3
    again = run("grade", folder, "--out", whole, "--secret-file", killed / ".secret")
    assert again.exit_code == 0, again.output
    assert rows(killed) == rows(whole)
    assert [row["student"] for row in rows(killed)] == students
    assert {row["status"] for row in rows(killed)} == {"graded"}


def test_the_same_file_is_graded_once_and_a_changed_one_again(tmp_path, write_notebook, solution, graded):
    for name in ("ada", "ben"):
        write_notebook(f"{name}.ipynb", *solution.values())
    command = ("grade", tmp_path / "submissions", "--out", tmp_path / "results")
    assert run(*command).exit_code == run(*command).exit_code == 0
    assert graded == ["ada", "ben"]
    write_notebook("ben.ipynb", solution["mean"])
    assert run(*command).exit_code == 0
    assert graded == ["ada", "ben", "ben"]
    assert {row["student"]: row["score"] for row in rows(tmp_path / "results")} == {"ada": "100", "ben": "60"}


def test_a_key_depends_on_all_that_a_result_does(tmp_path, write_notebook, tiny, monkeypatch):
    path, other = write_notebook("a.ipynb", "x = 1"), write_notebook("b.ipynb", "x = 2")

    def key(student="ada", path=path, secret=b"s", only=None, tier="t"):
        return store.key_of(Submission(student, path), secret, only, tier)

    keys = {key(), key("ben"), key(path=other), key(secret=b"r"), key(only=tiny), key(tier="u")}
    monkeypatch.setattr(store, "checks_and_versions", lambda: b"other")
    assert len({*keys, key()}) == 7
    assert key(path=tmp_path / "none") == ""


def test_a_key_depends_on_every_file_of_every_labs_package(monkeypatch):
    read = set()
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.add(path) or b"")
    store.checks_and_versions.__wrapped__()
    files = set(Path(exercises.__file__).resolve().parent.rglob("*.py"))
    assert len(files) > sum(len(exercises.load(slug).exercises) for slug in exercises.LABS)
    assert files <= read


def test_a_kept_result_that_is_damaged_is_made_again(tmp_path, write_notebook, graded):
    write_notebook("ada.ipynb", "x = 1", hpcdl={"lab": "tiny"})
    command = ("grade", tmp_path / "submissions", "--out", tmp_path / "results")
    run(*command)
    (kept,) = (tmp_path / "results" / ".cache").glob("*.json")
    for damage in ("", "{", "[]", '{"schema": "old"}'):
        kept.write_text(damage)
        assert run(*command).exit_code == 0
    assert len(graded) == 5


def test_a_result_read_back_is_the_same(zygote, write_notebook, solution):
    submission = Submission("ada", write_notebook("ada.ipynb", solution["mean"], "def count(n): return n"))
    ((_, result),) = batch.grade_all([submission], b"s")
    assert result.score == 60
    assert type(result).from_json(result.to_json()) == result


def test_grade_one_is_repeatable_and_leaves_the_submission_alone(tmp_path, write_notebook, solution):
    path = write_notebook("ada.ipynb", solution["mean"].replace("/ x.numel()", ""), solution["count"])
    before = path.read_bytes(), path.stat().st_mtime_ns
    secret = tmp_path / "secret"
    secret.write_text("course")
    found = []
    for name in ("one.json", "two.json"):
        result = run("grade-one", path, "--out", tmp_path / name, "--secret-file", secret)
        assert result.exit_code == 0, result.output
        text = (tmp_path / name).read_text()
        found.append([line for line in text.splitlines() if '"seconds"' not in line])
    assert found[0] == found[1]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_two_graders_on_one_folder_do_not_collide(tmp_path, write_notebook):
    write_notebook("ada.ipynb", "x = 1", hpcdl={"lab": "tiny"})
    out = tmp_path / "results"
    with store.locked(out):
        result = run("grade", tmp_path / "submissions", "--out", out)
    assert result.exit_code == 3
    assert f"process {os.getpid()}" in result.output.replace("\n", " ")
    assert run("grade", tmp_path / "submissions", "--out", out).exit_code == 0


def test_an_error_of_the_graders_own_costs_one_submission(tmp_path, write_notebook, solution, monkeypatch):
    for name in ("ada", "ben", "cyd"):
        write_notebook(f"{name}.ipynb", *solution.values())
    original = grade.grade

    def fail(submission, *rest):
        if submission.student == "ben":
            raise RuntimeError("a bug")
        return original(submission, *rest)

    monkeypatch.setattr(grade, "grade", fail)
    assert run("grade", tmp_path / "submissions", "--out", tmp_path / "results").exit_code == 0
    found = {row["student"]: row for row in rows(tmp_path / "results")}
    assert [found[name]["score"] for name in ("ada", "ben", "cyd")] == ["100", "0", "100"]
    assert "the grader failed on this file (RuntimeError: a bug)" in found["ben"]["message"]


def test_an_exercise_is_replayed_on_the_inputs_of_the_report(tmp_path, write_notebook, solution, monkeypatch, zygote):
    monkeypatch.setattr("autograder.walls.zygote.Zygote", lambda **_: contextlib.nullcontext(zygote))
    path = write_notebook("ada.ipynb", solution["mean"].replace("/ x.numel()", ""), solution["count"])
    report = tmp_path / "ada.json"
    assert run("grade-one", path, "--out", report).exit_code == 0
    first = json.loads(report.read_text())["exercises"][0]["checks"][0]
    again = run("replay", report, path, "mean")
    assert again.exit_code == 0, again.output
    assert first["got"] in again.output
    assert "In the report: 0 points; now: 0." in again.output
    path = write_notebook("ada.ipynb", *solution.values())
    assert run("replay", report, path, "mean").exit_code == 1
    assert "it has mean, count" in run("replay", report, path, "meen").output.replace("\n", " ")
