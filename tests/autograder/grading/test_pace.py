"""A submission that loops costs one limit, not one for each exercise; what is right and slow keeps its points."""

import contextlib
import dataclasses

import pytest

from autograder import exercises, feedback
from autograder.authoring import Lab
from autograder.authors import build
from autograder.grading import batch, pace
from autograder.grading.layouts import Submission
from autograder.grading.run import GRACE, run_lab
from autograder.grading.seeds import seeds
from autograder.grading.store import ResultStore

NAMES = ("one", "two", "three", "four", "five")
LIMIT = 2.0
LOOP = "def {}(x):\n    while True:\n        pass\n"
RIGHT = "def {}(x):\n    return x + 1\n"
SLOW = "import time\ndef {}(x):\n    time.sleep(0.1)\n    return x + 1\n"


def make_lab() -> Lab:
    lab = Lab("slow", number=0, title="Slow")
    for name in NAMES:
        exercise = lab.exercise(name, points=20, minutes=1)
        for part in ("first", "second"):

            def adds_one(student, rng, name=name):
                "It adds one."
                assert getattr(student, name)(1) == 2

            adds_one.__name__ = part
            exercise.check(points=10, seconds=LIMIT)(adds_one)
    return lab


def short(exercise, check) -> float:
    return check.seconds / 10


def graded(remote, code: str):
    return run_lab(make_lab(), remote(code), seeds(b"", ""), short)


@pytest.mark.labs  # waits for limits
def test_five_exercises_that_loop_cost_less_than_two_limits(remote):
    results = graded(remote, "\n".join(LOOP.format(name) for name in NAMES))
    assert [check.points for result in results for check in result.checks] == [0.0] * 10
    spent = [check.seconds for result in results for check in result.checks]
    assert spent[0] >= LIMIT
    assert sum(spent[2:]) < LIMIT * (1 - GRACE) + 10 * 0.3  # of patience, on a busy machine
    said = feedback.text(results[1])
    assert "did not finish within 0.2 s" in said
    assert "An earlier exercise ran out of time, so this check had less than its 2 s" in said
    assert "Mend the earlier exercise first" in said
    assert "Mend that one first" in feedback.text(results[0])


@pytest.mark.labs  # waits for limits
def test_slow_code_that_is_right_keeps_its_points_after_a_loop(remote):
    code = LOOP.format("one") + "\n".join(SLOW.format(name) for name in NAMES[1:])
    results = graded(remote, code)
    assert [result.points for result in results] == [0.0, 20.0, 20.0, 20.0, 20.0]


def test_without_a_loop_every_check_has_its_limit(remote):
    asked = []
    code = "\n".join(RIGHT.format(name) for name in NAMES)
    results = run_lab(make_lab(), remote(code), seeds(b"", ""), lambda *which: asked.append(which))
    assert sum(result.points for result in results) == 100
    assert asked == []


@pytest.mark.parametrize(
    ("took", "seconds"), [(0.0, 0.5), (0.009, 0.5), (0.02, 1.25), (0.04, 2.5), (0.2, 5.0), (None, 5.0)]
)
def test_limit_is_generous_and_bounded(monkeypatch, took, seconds):
    lab = make_lab()
    check = dataclasses.replace(lab.exercises["one"].checks["first"], seconds=5.0)
    monkeypatch.setattr(pace, "_measured", {"slow": {} if took is None else {"one.first": took}})
    assert pace.limit(None, lab.exercises["one"], check) == seconds


def test_reference_is_timed_once(zygote, monkeypatch):
    monkeypatch.setattr(pace, "_measured", {})
    lab = exercises.load("gradient_descent")
    found = pace.reference_seconds(lab, zygote)
    assert {name.partition(".")[0] for name in found} == set(lab.exercises)
    assert 0 < max(found.values()) < 5
    assert pace.reference_seconds(lab, None) is found
    assert pace.reference_seconds(make_lab(), zygote) == {}


@pytest.mark.labs
def test_real_lab_loses_only_its_loops(tmp_path, zygote, monkeypatch):
    lab = exercises.load("gradient_descent")
    notebook = build.solved(lab.slug)
    cells = {cell.metadata.get("hpcdl", {}).get("exercise"): cell for cell in notebook.cells}
    for name in ("mse_grad", "gradient_descent"):
        loops = [LOOP.format(function).replace("(x)", "(*args)") for function in lab.exercises[name].functions]
        cells[f"{lab.slug}.{name}"].source = "\n".join(loops)
    fast, slow = "def minibatches(", "def minibatches(*args):\n    time.sleep(0.05)\n    return fast(*args)\n"
    answer = cells[f"{lab.slug}.minibatches"]
    answer.source = "import time\n" + answer.source.replace(fast, "def fast(") + "\n\n" + slow
    path = tmp_path / "ada.ipynb"
    path.write_text(build.write(notebook), encoding="utf-8")
    monkeypatch.setattr("autograder.grading.batch.Zygote", lambda **_: contextlib.nullcontext(zygote))
    with batch.Lane(b"s", lab, ResultStore(None)) as lane:
        result = lane.grade(Submission("ada", path))
    assert result.summary() == "gradient_descent 0/10; mse_grad 0/10"
